# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter ``diagnose``: a thin door to plugin_utils/diagnosis."""

from __future__ import annotations

DOCUMENTATION = r"""
name: diagnose
short_description: Find the root cause in logs, one response and the state of the nodes
version_added: 0.1.0
author: dgx_spark.vllm maintainers
description:
  - Reads what is known about a deployment of vLLM and says what is wrong, why, and what to change.
  - The rules are data (C(knowledge/log_rules.yml), C(state_rules.yml), C(response_rules.yml)), each with its
    source; C(docs/decisions.md) lists them.
  - The first root cause in time over all nodes is the first finding. Messages that only announce an error
    printed elsewhere, and lines at level INFO, are never it. Evidence that contradicts itself, or holds only
    consequences, gives the verdict C(undecided) with what to look at next.
positional: _input
options:
  _input:
    description:
      - The evidence; every part is optional.
      - C(logs) maps node names to log texts (journal, C(docker logs), kernel log; one text a node).
      - C(response) is one body of the API, a completion, a stream or an error, with the C(request) inside
        it where it is known.
      - C(state) maps node names to nested facts (systemd, Docker, memory, linger, fabric, metrics).
      - C(config) holds C(image), C(vllm) (its version), C(model) and C(flags) (text, list or mapping).
    type: dict
    required: true
  model:
    description: The model, where the evidence has no C(config.model).
    type: str
  vllm:
    description: The version of vLLM, where the evidence has no C(config.vllm) and no log prints it.
    type: str
  image:
    description: The serving image.
    type: str
  flags:
    description: The flags of C(vllm serve), as text, list or mapping.
    type: raw
  thinking:
    description: How the model thinks, as the plan says; helps to tell leaked thoughts from a plain answer.
    type: str
    choices: [none, 'on', 'off', always, adaptive]
"""

EXAMPLES = r"""
- name: Say why the deployment does not answer
  ansible.builtin.debug:
    msg: "{{ evidence | dgx_spark.vllm.diagnose(model='Qwen/Qwen3-32B') }}"
  vars:
    evidence:
      logs:
        spark-1: "{{ head_journal.stdout }}"
        spark-2: "{{ worker_journal.stdout }}"
      state:
        spark-1: "{{ hostvars['spark-1'].node_facts }}"

# A log pasted into a file, with no node at all:
# {{ {'logs': {'pasted': lookup('ansible.builtin.file', 'vllm.log')}} | dgx_spark.vllm.diagnose }}
"""

RETURN = r"""
_value:
  description:
    - The verdict and its findings; the first finding is the root cause.
    - Input that is no mapping, or whose parts have the wrong type, raises an error that names the part.
  type: dict
  contains:
    verdict:
      description:
        - C(fault) when a root cause was found; C(healthy) when the server answers; C(loading) when a start
          goes on; C(undecided) when the evidence is contradictory or not enough.
      type: str
    findings:
      description: What was found, the root cause first.
      type: list
      elements: dict
      contains:
        id:
          description: Stable name of the rule.
          type: str
        level:
          description: C(error), C(warning) or C(note).
          type: str
        confidence:
          description: C(high), C(medium) or C(low), by the rule's evidence and what speaks against it.
          type: str
        node:
          description: The node it was seen on; empty for a response or the deployment as a whole.
          type: str
        evidence:
          description: The lines or facts that made the rule hold, shortened.
          type: list
          elements: str
        what:
          description: The fact.
          type: str
        why:
          description: Its reason.
          type: str
        fix:
          description: The variable or command that changes it, with values read from the evidence.
          type: str
        source:
          description: Where the rule comes from, and its anchor in docs/decisions.md.
          type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.diagnosis import diagnose as _diagnose
from ..plugin_utils.plain import plain

_PARTS: Mapping[str, tuple[type, ...]] = {
    "logs": (Mapping,),
    "response": (Mapping, str, list),
    "state": (Mapping,),
    "config": (Mapping,),
}


def diagnose(evidence: Any, **context: Any) -> dict[str, Any]:
    """Checked and plain evidence, diagnosed."""
    if not isinstance(evidence, Mapping):
        raise AnsibleFilterError("diagnose: the evidence must be a mapping of logs, response, state and config")
    for name, types in _PARTS.items():
        part = evidence.get(name)
        if part is not None and not isinstance(part, types):
            raise AnsibleFilterError(f"diagnose: {name} must be a mapping, not {type(part).__name__}")
    unknown = set(map(str, evidence)) - set(_PARTS)
    if unknown:
        raise AnsibleFilterError(f"diagnose: unknown evidence {', '.join(sorted(unknown))}; known: {', '.join(_PARTS)}")
    return _diagnose(plain(evidence), **plain(context))


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function, as Ansible asks for it."""
        return {"diagnose": diagnose}
