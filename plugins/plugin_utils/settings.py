# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The variables a user sets, checked before anything is touched, all complaints at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from .checkpoint import InputError
from .wishes import Wishes, read_wishes

PREFIX = "vllm_"
# Prefixes that belong to this collection alone; an unknown name with one of them is a slip of the pen.
OWN_PREFIXES = (PREFIX, "fabric_", "ray_", "smoke_", "nvidia_runtime_", "user_units_", "teardown_")
WISHES = tuple(field.name for field in fields(Wishes))


def variable(wish: str) -> str:
    """The variable that carries a wish: ``vllm_version`` carries itself, the others get the prefix."""
    return wish if wish.startswith(PREFIX) else PREFIX + wish


def wishes_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The wishes among a host's variables, by the name the plan filter takes. Unset and empty ones are left out."""
    values = {wish: variables[variable(wish)] for wish in WISHES if variable(wish) in variables}
    return {wish: value for wish, value in values.items() if value is not None and value != ""}


def nodes_of(host: str, variables: Mapping[str, Any]) -> Any:
    """The nodes of the deployment a host belongs to: ``vllm_nodes``, or the host alone."""
    return variables.get("vllm_nodes") or [host]


def complaints(
    host: str,
    variables_of: Callable[[str], Mapping[str, Any]],
    inventory: Collection[str],
    play: Collection[str],
    known: Collection[str],
) -> list[str]:
    """What is wrong with the settings of one host, each message beginning with the variable's name."""
    variables = variables_of(host)
    found = []
    model = variables.get("vllm_model")
    if not isinstance(model, str) or not model.strip():
        found.append(
            "vllm_model: expected a repository (owner/name) or a directory, got nothing"
            if not model
            else f"vllm_model: expected text, got {model!r}"
        )
    found += _node_complaints(host, variables_of, inventory, play)
    try:
        read_wishes(**wishes_of(variables))
    except InputError as error:
        found.append(str(error) if error.field.startswith(PREFIX) else PREFIX + str(error))
    return found + _unknown(variables, known)


def _node_complaints(
    host: str, variables_of: Callable[[str], Mapping[str, Any]], inventory: Collection[str], play: Collection[str]
) -> list[str]:
    nodes = nodes_of(host, variables_of(host))
    if isinstance(nodes, str) or not isinstance(nodes, Sequence) or not all(isinstance(name, str) for name in nodes):
        return [f"vllm_nodes: expected a list of host names, got {nodes!r}"]
    found = []
    if len(set(nodes)) != len(nodes):
        found.append(f"vllm_nodes: a node stands in it twice ({', '.join(nodes)})")
    strangers = [name for name in nodes if name not in inventory]
    absent = [name for name in nodes if name in inventory and name not in play]
    if strangers:
        found.append(f"vllm_nodes: {', '.join(strangers)} not in the inventory (it has {', '.join(sorted(inventory))})")
    if absent:
        found.append(
            f"vllm_nodes: {', '.join(absent)} left out of this run (by --limit, or unreachable); "
            "a deployment is made on all its nodes at once"
        )
    if host not in nodes:
        found.append(f"vllm_nodes: {host} itself is not among {', '.join(nodes)}")
    for name in nodes:
        if name in inventory and name != host and list(nodes_of(name, variables_of(name))) != list(nodes):
            found.append(f"vllm_nodes: {host} and {name} do not name the same nodes in the same order")
    return found


def _unknown(variables: Mapping[str, Any], known: Collection[str]) -> list[str]:
    names = set(known) | {variable(wish) for wish in WISHES}
    found = []
    for name in sorted(variables):
        if name.startswith(OWN_PREFIXES) and name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=1)
            found.append(f"{name}: there is no such variable" + (f"; did you mean {near[0]}?" if near else ""))
    return found
