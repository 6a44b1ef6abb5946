# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: deployment_name
short_description: A name for the deployment of a model
version_added: 0.1.0
description:
  - The last part of a repository's name or of a path, in lower case and in characters that a unit,
    a container and a file may have in their names.
positional: _input
options:
  _input:
    description: The model, as C(owner/name), C(owner/name@revision) or a directory.
    type: str
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
name: "{{ 'Qwen/Qwen3-30B-A3B' | dgx_spark.vllm.deployment_name }}"  # qwen3-30b-a3b
"""

RETURN = r"""
_value:
  description: The name.
  type: str
"""

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.container import deployment_name


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"deployment_name": deployment_name}
