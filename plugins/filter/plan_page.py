# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A plan as text: for a person, for an issue, for a machine."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_page
short_description: Write a plan as a page, as Markdown or as JSON
version_added: 0.1.0
description:
  - Takes what the filter P(dgx_spark.vllm.plan#filter) returned and writes it down.
  - The page has the verdict first, then the memory as one bar a node, the command line with the reason for
    each flag, the environment, and the findings with what to do about them.
positional: format, width
options:
  _input:
    description: A plan, as P(dgx_spark.vllm.plan#filter) returns it.
    type: dict
    required: true
  format:
    description: How to write it.
    type: str
    choices: [page, markdown, json]
    default: page
  width:
    description: Columns to wrap the page's sentences at.
    type: int
    default: 100
"""

EXAMPLES = r"""
- name: Read a plan
  dgx_spark.vllm.show:
    text: "{{ model | dgx_spark.vllm.plan(nodes) | dgx_spark.vllm.plan_page }}"

- name: Keep it beside the inventory
  ansible.builtin.copy:
    content: "{{ plan | dgx_spark.vllm.plan_page('markdown') }}"
    dest: "{{ inventory_dir }}/plan.md"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The text, ending with a line break.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.plain import plain
from ..plugin_utils.render import FORMATS, page


def plan_page(plan: Any, format: str = "page", width: int = 100) -> str:
    """The plan as text in one of the formats."""
    if not isinstance(plan, Mapping) or not {"fits", "placement", "memory", "serve"} <= set(plan):
        raise AnsibleFilterError("plan_page: _input: expected a plan as dgx_spark.vllm.plan returns it")
    if format not in FORMATS:
        raise AnsibleFilterError(f"plan_page: format: expected one of {', '.join(FORMATS)}, got {format!r}")
    try:
        columns = int(width)
    except (TypeError, ValueError):
        columns = 0
    if not 40 <= columns <= 400:
        raise AnsibleFilterError(f"plan_page: width: expected 40 to 400 columns, got {width!r}")
    read = plain(plan)
    return page(read, columns) if format == "page" else FORMATS[str(format)](read)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"plan_page": plan_page}
