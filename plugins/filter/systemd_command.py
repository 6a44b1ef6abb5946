# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_command
short_description: Words of a command as the value of ExecStart
version_added: 0.1.0
description:
  - Quotes each word so that systemd reads it back unchanged, and puts each option on a line of its own.
positional: _input
options:
  _input:
    description: The words of the command.
    type: list
    elements: str
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
exec_start: "ExecStart={{ ['/usr/bin/echo', '100 %'] | dgx_spark.vllm.systemd_command }}"
"""

RETURN = r"""
_value:
  description: Text to stand behind C(ExecStart=).
  type: str
"""

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.container import systemd_command


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"systemd_command": systemd_command}
