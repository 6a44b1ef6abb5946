# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: plugin_files
short_description: The parsers that a checkpoint ships and its plan uses, as files of the deployment
version_added: 0.1.0
description:
  - A plan names such a parser by its path in the container, below C(/spark). This gives the file that belongs there.
positional: _input, checkpoint
options:
  _input:
    description: The plan.
    type: dict
    required: true
  checkpoint:
    description: What M(dgx_spark.vllm.checkpoint_facts) returned as C(model).
    type: dict
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
files: "{{ vllm_plan | dgx_spark.vllm.plugin_files(checkpoint.model) }}"
"""

RETURN = r"""
_value:
  description: Files as M(dgx_spark.vllm.deployment) takes them, C(name) and C(content).
  type: list
  elements: dict
"""

from pathlib import PurePosixPath


def plugin_files(plan, checkpoint):
    return [
        {"name": PurePosixPath(path).name, "content": checkpoint["parser_files"][source]}
        for path, source in plan["serve"]["plugin_files"].items()
    ]


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"plugin_files": plugin_files}
