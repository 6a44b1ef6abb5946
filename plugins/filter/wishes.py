# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: wishes
short_description: The wishes among a host's variables
version_added: 0.1.0
description:
  - Picks C(vllm_context), C(vllm_placement) and the other wishes out of a host's variables and names them
    as the P(dgx_spark.vllm.plan#filter) filter takes them. Wishes that are not set, null or empty are left out.
positional: _input
options:
  _input:
    description: The variables of a host.
    type: dict
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
plan: "{{ model | dgx_spark.vllm.plan(nodes, **(hostvars[inventory_hostname] | dgx_spark.vllm.wishes)) }}"
"""

RETURN = r"""
_value:
  description: Wishes by name.
  type: dict
"""

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.settings import wishes_of


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"wishes": wishes_of}
