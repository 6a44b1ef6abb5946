# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: node_secrets
short_description: The secrets that one node of a deployment needs
version_added: 0.1.0
description:
  - The API key goes to the head alone and the Ray token only to nodes of a Ray cluster.
positional: _input, plan, node
options:
  _input:
    description: All secrets of the deployment by name.
    type: dict
    required: true
  plan:
    description: The plan, which says what each node does.
    type: dict
    required: true
  node:
    description: Name of the node.
    type: str
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
secrets: "{{ secrets | dgx_spark.vllm.node_secrets(plan, 'spark-2') }}"
"""

RETURN = r"""
_value:
  description: Values by name.
  type: dict
"""

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.container import node_secrets


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"node_secrets": node_secrets}
