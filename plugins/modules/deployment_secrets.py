#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_secrets
short_description: Read the secrets of a deployment from its head, or make those that are missing
version_added: 0.1.0
description:
  - Secrets live in C(secrets.env) beside the other files of the deployment (mode 0600), one C(NAME=value) a line.
  - Reads that file, lets given values win, and makes up random values for names that have none yet.
  - Writes nothing. M(dgx_spark.vllm.deployment) writes the file, so check mode tells the truth.
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
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
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

import os
import secrets

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import files, paths


def parse(text):
    """Values by name from lines of NAME=value."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, equals, value in pairs if equals}


def merge(present, given, generate):
    """Present values of the wanted names, given ones first, random ones for names to generate that have none."""
    merged = {name: str(value) for name, value in given.items() if value}
    for name in generate:
        if name not in merged:
            merged[name] = present.get(name) or secrets.token_hex(32)
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
    path = os.path.join(paths.config_path(os.path.expanduser("~"), module.params["name"]), "secrets.env")
    text = files.current(path)[0] or ""
    module.exit_json(changed=False, secrets=merge(parse(text), module.params["given"], module.params["generate"]))


if __name__ == "__main__":
    main()
