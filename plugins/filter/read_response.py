# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter ``read_response``: a thin door to plugin_utils/diagnosis."""

from __future__ import annotations

DOCUMENTATION = r"""
name: read_response
short_description: Say what is wrong with one response of the server
version_added: 0.1.0
author: dgx_spark.vllm maintainers
description:
  - Reads one body of the OpenAI-compatible API - a completion, a stream, or an error - and says what is wrong
    with it and what to change. An empty list means that it reads right.
  - The rules are data in C(knowledge/response_rules.yml); C(docs/decisions.md) lists them.
positional: _input
options:
  _input:
    description:
      - The body as a mapping, the pieces of a stream as a list, or the raw text (JSON, server-sent events, or
        what a proxy printed).
    type: raw
    required: true
  request:
    description: The body that was sent; tells the budget, the tools and the switches that were asked for.
    type: dict
  model:
    description: The model that is served.
    type: str
  vllm:
    description: The version of vLLM.
    type: str
  flags:
    description: The flags of C(vllm serve), as text, list or mapping.
    type: raw
  reasoning_parser:
    description: The reasoning parser, where I(flags) is not given.
    type: str
  tool_call_parser:
    description: The tool-call parser, where I(flags) is not given.
    type: str
  thinking:
    description: How the model thinks, as the plan says; helps to tell leaked thoughts from a plain answer.
    type: str
    choices: [none, 'on', 'off', always, adaptive]
"""

EXAMPLES = r"""
- name: Fail when the answer does not read right
  ansible.builtin.assert:
    that: findings | selectattr('level', 'eq', 'error') | length == 0
    fail_msg: "{{ findings[0].what }} {{ findings[0].fix }}"
  vars:
    findings: "{{ answer.json | dgx_spark.vllm.read_response(request=request, reasoning_parser='qwen3') }}"
"""

RETURN = r"""
_value:
  description: What was found, the telling finding first; empty when the response reads right.
  type: list
  elements: dict
  contains:
    level:
      description: C(error), C(warning) or C(note).
      type: str
    id:
      description: Stable name of the rule.
      type: str
    what:
      description: The fact.
      type: str
    why:
      description: Its reason.
      type: str
    fix:
      description: The variable or setting that changes it.
      type: str
    source:
      description: Where the rule comes from.
      type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.diagnosis import read_response as _read_response
from ..plugin_utils.plain import plain


def read_response(body: Any, **context: Any) -> list[dict[str, Any]]:
    """The findings of one response as plain mappings."""
    if not isinstance(body, Mapping | str | list):
        raise AnsibleFilterError(f"read_response: a body is mapping, list or text, not {type(body).__name__}")
    return [finding.as_dict() for finding in _read_response(plain(body), **plain(context))]


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function, as Ansible asks for it."""
        return {"read_response": read_response}
