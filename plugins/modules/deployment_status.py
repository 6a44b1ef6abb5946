#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_status
short_description: Tell how one node's part of a deployment is doing, with the lines it logged since the last look
version_added: 0.1.0
description:
  - Reads the unit of the user this module runs as, its journal and whether its HTTP port answers.
  - An answering port says that the server is up and nothing more. Healthy is what M(dgx_spark.vllm.completion) finds.
options:
  name:
    description: Name of the deployment.
    type: str
    required: true
  cursor:
    description: Where the last look ended. Without it the lines of the unit's present run are returned.
    type: str
  lines:
    description: The most lines to return, the newest ones.
    type: int
    default: 300
  url:
    description: Base URL of the endpoint, on the node that serves it.
    type: str
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
"""

EXAMPLES = r"""
- name: Look how far it is
  dgx_spark.vllm.deployment_status:
    name: qwen3-30b
    url: http://192.0.2.11:8000
"""

RETURN = r"""
unit:
  description: Properties of the unit, named as systemd names them; empty when there is no user manager.
  returned: always
  type: dict
log:
  description: Lines of the journal, oldest first.
  returned: always
  type: list
  elements: str
cursor:
  description: Give it to the next look.
  returned: always
  type: str
listening:
  description: Whether the port answered with any HTTP status.
  returned: always
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.dgx_spark.vllm.plugins.module_utils import paths
from ansible_collections.dgx_spark.vllm.plugins.module_utils.systemd import UserSystemd


def listening(url):
    """Whether anything answers HTTP at url within two seconds."""
    try:
        open_url(url + "/health", timeout=2, use_proxy=False, http_agent="dgx_spark.vllm")
    except Exception as error:  # pylint: disable=broad-except
        return getattr(error, "code", None) is not None
    return True


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "cursor": {"type": "str"},
            "lines": {"type": "int", "default": 300},
            "url": {"type": "str"},
        },
        supports_check_mode=True,
    )
    unit_name = paths.unit_name(module.params["name"])
    systemd = UserSystemd(module)
    units = systemd.show(unit_name)
    unit = units[0] if units else {}
    log, cursor = systemd.journal(unit_name, module.params["lines"], module.params["cursor"], unit.get("InvocationID"))
    url = module.params["url"]
    module.exit_json(changed=False, unit=unit, log=log, cursor=cursor, listening=bool(url) and listening(url))


if __name__ == "__main__":
    main()
