# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of the nodes as facts, and as lines where it quotes logs.

Who writes state down differs: our own facts module, ``docker inspect``, a person. So keys are matched by
patterns over dotted paths, and every text in it is also read as a line of that node's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from .conditions import flatten

# Sections of a node; a state that has them at its top is the state of one node.
_SECTIONS = frozenset(
    (
        "systemd",
        "docker",
        "memory",
        "linger",
        "groups",
        "unit",
        "units",
        "container",
        "containers",
        "mtu",
        "metrics",
        "gpu",
        "ports",
        "fabric",
        "links",
        "kernel",
        "logind",
        "meminfo",
        "nvidia_smi",
        "power",
        "user",
        "time",
        "ray",
        "inspect",
        "state",
        "disk",
        "rdma",
        "network",
        "request",
        "config",
    )
)


def per_node(state: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The state node by node; facts about the whole deployment are under the empty name."""
    nodes = {
        str(name): part
        for name, part in state.items()
        if isinstance(part, Mapping) and str(name).lower() not in _SECTIONS
    }
    scalar = {str(name): part for name, part in state.items() if not isinstance(part, Mapping)}
    sections = {
        str(name): part for name, part in state.items() if isinstance(part, Mapping) and str(name).lower() in _SECTIONS
    }
    if nodes and not sections:
        return {**nodes, **({"": scalar} if scalar else {})}
    return {"": state} if state else {}


# Parts of a node's facts that are no state: records of plans hold texts about faults that did not happen.
_NUMBERED = re.compile(r"\.\d+(?:\.|$)")  # places in lists differ between nodes and mean nothing
_FOREIGN = ("deployments.", "plan.", "images.", "docker.images.", "interfaces.", "findings.", "env.")


def facts(state: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves of one node's state under ``state.``, and all of it as one text, ``state_text``."""
    leaves = {
        f"state.{path}": value
        for path, value in chain(flatten(state), _derived(state))
        if value is not None and not path.startswith(_FOREIGN)
    }
    if leaves:
        leaves["state_text"] = "\n".join(f"{path[6:]}: {value}" for path, value in leaves.items())[:20000]
    return leaves


def _derived(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What our own facts say only together: the fabric's MTU, groups that the user manager lacks."""
    interfaces, user = state.get("interfaces"), state.get("user")
    for interface in interfaces if isinstance(interfaces, list | tuple) else ():
        if isinstance(interface, Mapping) and interface.get("rdma_devices") and interface.get("carrier"):
            yield f"mtu.{interface.get('name')}", interface.get("mtu")
    if isinstance(user, Mapping):
        on_disk, held = user.get("groups"), user.get("manager_groups")
        if isinstance(on_disk, list | tuple) and isinstance(held, list | tuple):
            yield "docker_group_stale", "docker" in on_disk and "docker" not in held


def quoted(state: Mapping[str, Any]) -> list[str]:
    """Texts of the state that may quote a log."""
    return [
        line
        for path, value in flatten(state)
        if isinstance(value, str) and len(value) > 12 and not path.startswith(_FOREIGN)
        for line in value.splitlines()
    ]


def across(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What differs between nodes: how many values a fact has, how far its figures lie apart."""
    facts: dict[str, Any] = {}
    named = {node: part for node, part in nodes.items() if node}
    if len(named) < 2:
        return facts
    for path in {
        path for part in named.values() for path in part if path.startswith("state.") and not _NUMBERED.search(path)
    }:
        values = [part[path] for part in named.values() if path in part]
        if len(values) < 2:
            continue
        facts[f"nodes.distinct.{path[6:]}"] = len({str(value) for value in values})
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            facts[f"nodes.spread.{path[6:]}"] = max(values) - min(values)
    return facts
