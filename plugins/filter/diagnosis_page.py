# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: diagnosis_page
short_description: Write a diagnosis as a page
version_added: 0.1.0
description:
  - Takes what the filter P(dgx_spark.vllm.diagnose#filter) returned and writes it down, the root cause first,
    each finding with its node, the lines that show it, and what to do about it.
positional: width
options:
  _input:
    description: A diagnosis, as P(dgx_spark.vllm.diagnose#filter) returns it.
    type: dict
    required: true
  width:
    description: Columns to wrap sentences at.
    type: int
    default: 100
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
- name: Read a diagnosis
  dgx_spark.vllm.show:
    text: "{{ evidence | dgx_spark.vllm.diagnose | dgx_spark.vllm.diagnosis_page }}"
"""

RETURN = r"""
_value:
  description: The text, ending with a line break.
  type: str
"""

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis.page import page


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"diagnosis_page": page}
