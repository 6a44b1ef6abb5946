#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_secrets
short_description: Read the secrets of a deployment from its head, or make those that are missing
version_added: 0.1.0
description:
  - Each secret is a file C(NAME.secret) beside the other files of the deployment (mode 0600).
  - Reads those files, lets given values win, and makes up random values for names that have none yet.
  - Writes nothing. M(dgx_spark.vllm.deployment) writes the files, so check mode tells the truth.
  - Use C(no_log) on the task, as the values are returned.
options:
  name:
    description: Name of the deployment.
    type: str
    required: true
  given:
    description: Values the user chose, by name. Empty values are ignored.
    type: dict
    default: {}
  generate:
    description: Names that get a random value of 256 bits when there is none.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
"""

EXAMPLES = r"""
- name: Have a key for the endpoint
  dgx_spark.vllm.deployment_secrets:
    name: qwen3-30b
    generate: [VLLM_API_KEY]
  register: secrets
  no_log: true
"""

RETURN = r"""
secrets:
  description: Values by name.
  returned: always
  type: dict
"""

import secrets

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import files, paths


def merge(present, given, generate):
    """Given values, then those present(name) of names to generate, then random ones."""
    merged = {name: str(value) for name, value in given.items() if value}
    for name in generate:
        if name not in merged:
            merged[name] = present(name) or secrets.token_hex(32)
    return merged


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "given": {"type": "dict", "default": {}, "no_log": True},
            "generate": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    config = paths.config_path(paths.home(), module.params["name"])

    def present(name):
        return files.current(paths.secret_path(config, name))[0]

    module.exit_json(changed=False, secrets=merge(present, module.params["given"], module.params["generate"]))


if __name__ == "__main__":
    main()
