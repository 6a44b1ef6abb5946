# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The environment of the serving containers: what nodes share and what differs, by vLLM version and layout.

A variable is set only in the versions that read it: vLLM warns about others, and ends when it was told to
(vLLM 0.33 platforms/interface.py). The user's own variables win.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .checkpoint import InputError
from .findings import Finding
from .knowledge import knowledge
from .placement import Node
from .versions import holds

_PER_NODE = frozenset({"VLLM_HOST_IP"})
_SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD)$")
_OWNED = {
    "VLLM_API_KEY": "vllm_api_key",
    "HF_TOKEN": "vllm_hf_token",
    "HUGGING_FACE_HUB_TOKEN": "vllm_hf_token",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """``common`` for every container, ``nodes`` by node name, ``reasons`` by variable."""

    common: Mapping[str, str]
    nodes: Mapping[str, Mapping[str, str]]
    reasons: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@cache
def known_variables(at: str) -> frozenset[str]:
    """The VLLM_ variables a version reads."""
    rows = knowledge("environment")["known"]["rows"]
    return frozenset(f"VLLM_{name}" for row in rows if holds(row, at) for name in row["names"])


def environment(
    at: str,
    nodes: Sequence[Node],
    launcher: str,
    partition: Sequence[int] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Environment:
    """The variables for a deployment on ``nodes`` (head first) with a vLLM version.

    ``partition`` is given only where the layers are split otherwise than vLLM would. Node rows need the
    address, interface or RDMA devices of the fabric; where those are unknown the variable is left out.
    """
    own = dict(extra or {})
    _check_own(own, len(nodes))
    common: dict[str, str] = {}
    per_node: dict[str, dict[str, str]] = {node.name: {} for node in nodes}
    reasons: dict[str, str] = {}
    for row in _rows(at, launcher, len(nodes) > 1):
        if row["name"] in own:
            continue
        if row.get("per") == "node":
            for node in nodes:
                value = _filled(row["value"], _node_facts(node))
                if value is not None:
                    per_node[node.name][row["name"]] = value
                    reasons[row["name"]] = row["why"]
        else:
            value = _filled(row["value"], {"partition": ",".join(map(str, partition or ()))})
            if value is not None:
                common[row["name"]] = value
                reasons[row["name"]] = row["why"]
    unknown = [name for name in own if name.startswith("VLLM_") and name not in known_variables(at)]
    return Environment(
        common=common | own,
        nodes=per_node,
        reasons=reasons | dict.fromkeys(own, "asked for with vllm_extra_env"),
        findings=tuple(_unknown(name, at) for name in unknown),
    )


@cache
def _rows(at: str, launcher: str, several: bool) -> tuple[Mapping[str, Any], ...]:
    """The rows in force; what only several nodes or one launcher need is left out elsewhere."""
    return tuple(
        row
        for row in knowledge("environment")["rows"]
        if holds(row, at)
        and (several or ("nodes" not in row and "launcher" not in row))
        and row.get("launcher", launcher) == launcher
    )


def _node_facts(node: Node) -> dict[str, str]:
    return {
        "host_ip": node.fabric_address,
        "interface": node.fabric_interface,
        "rdma_devices": ",".join(node.rdma_devices),
    }


def _filled(value: str, facts: Mapping[str, str]) -> str | None:
    """The value with its facts filled in; None when a fact is unknown."""
    for name, fact in facts.items():
        if f"{{{name}}}" in value:
            if not fact:
                return None
            value = value.replace(f"{{{name}}}", fact)
    return value


def _check_own(own: Mapping[str, str], nodes: int) -> None:
    for name in own:
        if name in _OWNED or _SECRET.search(name):
            other = _OWNED.get(name, "a file that only the serving user can read")
            raise InputError("extra_env", f"expected no secret such as {name}; give it with {other}")
        if name in _PER_NODE and nodes > 1:
            raise InputError(
                "extra_env", f"expected no {name}: it differs from node to node (fabric_address of each node)"
            )


def _unknown(name: str, at: str) -> Finding:
    return Finding(
        level="warning",
        id="variable-unknown",
        what=f"vLLM {at} does not read {name}.",
        why="vLLM warns about it, and ends at the start with --fail-on-environ-validation.",
        fix=f"Take {name} out of vllm_extra_env for this image.",
        source="vLLM envs.py per release; 0.33.0 platforms/interface.py",
    )
