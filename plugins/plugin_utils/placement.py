# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a deployment lies on its nodes: one node if it fits, else pipeline over as few nodes as fit.

The module knows nodes, budgets and footprints in bytes and nothing about models: what a layout needs on each
node is given to it. Tensor parallel is never chosen here on its own; it is a wish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from .checkpoint import InputError
from .knowledge import knowledge

GIB = 1 << 30

Kind = Literal["single", "pipeline", "tensor"]
Launcher = Literal["ray", "mp"]


@dataclass(frozen=True, slots=True)
class Node:
    """One box: one GPU and one pool of memory shared with the CPU.

    ``memory_available_bytes`` is MemAvailable now, or None when the node was not asked. The fabric fields are
    empty when nobody looked; they only matter to the environment of a deployment on several nodes.
    """

    name: str
    memory_total_bytes: int
    memory_available_bytes: int | None = None
    bandwidth_gb_s: float = 273.0
    fabric_address: str = ""
    fabric_interface: str = ""
    rdma_devices: tuple[str, ...] = ()
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a deployment lies; ``nodes[0]`` is the head, ``partition`` the layers per stage if not usual."""

    kind: Kind
    nodes: tuple[str, ...]
    pipeline_parallel_size: int
    tensor_parallel_size: int
    launcher: Launcher
    reason: str
    partition: tuple[int, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The contract's ``placement`` keys."""
        return {
            "kind": self.kind,
            "nodes": list(self.nodes),
            "pipeline_parallel_size": self.pipeline_parallel_size,
            "tensor_parallel_size": self.tensor_parallel_size,
            "launcher": self.launcher,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be asked of a node; figures and sources in ``knowledge/hardware.yml``."""

    single_utilization: float
    shared_comfortable_bytes: int
    shared_ceiling_bytes: int
    operating_system_reserve_bytes: int
    host_processes_bytes: int


@dataclass(frozen=True, slots=True)
class Told:
    """The user's own word on memory; None where there is none."""

    gpu_memory_utilization: float | None = None
    reserve_bytes: int | None = None
    footprint_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What vLLM may take on each node of a layout.

    ``utilization`` is the flag's value, one for all nodes. ``limit_bytes`` has one entry a node: a footprint
    above it is refused. Above ``comfortable_bytes`` it is warned about. ``reason`` says who set it.
    """

    utilization: float
    limit_bytes: tuple[int, ...]
    comfortable_bytes: tuple[int, ...]
    reason: str

    def fits(self, footprints: Sequence[int]) -> bool:
        """Whether every node stays within its limit."""
        return all(need <= limit for need, limit in zip(footprints, self.limit_bytes, strict=True))

    def comfortable(self, footprints: Sequence[int]) -> bool:
        """Whether every node stays where deployments are known to load without trouble."""
        return all(need <= mark for need, mark in zip(footprints, self.comfortable_bytes, strict=True))


@cache
def limits() -> Limits:
    """The limits this project plans with."""
    rows = knowledge("hardware")["limits"]
    return Limits(
        single_utilization=rows["single_utilization"]["value"],
        shared_comfortable_bytes=int(rows["shared_comfortable_gib"]["value"] * GIB),
        shared_ceiling_bytes=int(rows["shared_ceiling_gib"]["value"] * GIB),
        operating_system_reserve_bytes=int(rows["operating_system_reserve_gib"]["value"] * GIB),
        host_processes_bytes=int(rows["host_processes_gib"]["value"] * GIB),
    )


@cache
def default_node() -> Node:
    """A DGX Spark that nobody has asked."""
    data = knowledge("hardware")
    row = next(row for row in data["node_kinds"] if row["name"] == data["default_node_kind"])
    return Node(
        name="spark1",
        memory_total_bytes=int(row["memory_total_gib"] * GIB),
        bandwidth_gb_s=float(row["bandwidth_gb_s"]),
        measured=False,
    )


def read_nodes(nodes: Any) -> tuple[Node, ...]:
    """The nodes of a plan. InputError names the figure that makes no sense; other keys are left alone."""
    if isinstance(nodes, str | Mapping) or not isinstance(nodes, Sequence) or not nodes:
        raise InputError("nodes", f"expected a list of at least one node, as [{{'name': 'spark1'}}]; got {nodes!r}")
    read = tuple(_read_node(f"nodes[{index}]", node) for index, node in enumerate(nodes))
    names = [node.name for node in read]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("nodes", f"expected every node once, got {', '.join(twice)} more than once")
    return read


def _read_node(field: str, node: Any) -> Node:
    if isinstance(node, str):
        node = {"name": node}
    if not isinstance(node, Mapping):
        raise InputError(field, f"expected a name or a mapping with a name, got {node!r}")
    usual = default_node()
    name = node.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{field}.name", f"expected the node's name, got {name!r}")
    total = _number(f"{field}.memory_total_bytes", node.get("memory_total_bytes"), GIB, 1 << 44)
    available = _number(f"{field}.memory_available_bytes", node.get("memory_available_bytes"), 0, 1 << 44)
    bandwidth = _number(f"{field}.bandwidth_gb_s", node.get("bandwidth_gb_s"), 1, 100_000)
    if total is not None and available is not None and available > total:
        raise InputError(
            f"{field}.memory_available_bytes", f"expected at most the total of {int(total)}, got {available}"
        )
    devices = node.get("rdma_devices") or ()
    return Node(
        name=str(name),
        memory_total_bytes=int(total) if total is not None else usual.memory_total_bytes,
        memory_available_bytes=int(available) if available is not None else None,
        bandwidth_gb_s=float(bandwidth) if bandwidth is not None else usual.bandwidth_gb_s,
        fabric_address=str(node.get("fabric_address") or ""),
        fabric_interface=str(node.get("fabric_interface") or ""),
        rdma_devices=(str(devices),) if isinstance(devices, str) else tuple(str(device) for device in devices),
        measured=total is not None,
    )


def _number(field: str, value: Any, low: float, high: float) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not low <= number <= high:
        raise InputError(field, f"expected a number from {low:,.0f} to {high:,.0f}, got {value!r}")
    return number


def budget(kind: Kind, nodes: Sequence[Node], told: Told) -> Budget:
    """What vLLM may take on ``nodes``.

    One node: the launch template's share of its memory. Several: the footprint that is known to load. The
    user's word replaces either. What is available now is the last word, because vLLM refuses to start when
    less than utilization x total is free (vllm/v1/worker/utils.py, ``request_memory``, 0.33).
    """
    usual = limits()
    reason, shares, marks = "", [], []
    for node in nodes:
        total = node.memory_total_bytes
        template = int(usual.single_utilization * total)
        limit = template if kind == "single" else min(usual.shared_ceiling_bytes, template)
        mark = template if kind == "single" else min(usual.shared_comfortable_bytes, template)
        reason = "the launch template's share"
        if kind != "single":
            known, most = (size // GIB for size in (usual.shared_comfortable_bytes, usual.shared_ceiling_bytes))
            reason = f"what a node of several is known to load ({known} GiB, {most} at most)"
        if told.footprint_limit_bytes is not None:
            limit = mark = min(told.footprint_limit_bytes, total)
            reason = "footprint_limit_bytes as asked"
        if told.reserve_bytes is not None:
            limit = mark = total - told.reserve_bytes
            reason = "what reserve_bytes leaves"
        if told.gpu_memory_utilization is not None:
            share = int(told.gpu_memory_utilization * total)
            limit = mark = min(share, limit) if told.reserve_bytes is not None else share
            reason = "gpu_memory_utilization as asked"
        if node.memory_available_bytes is not None:
            free = node.memory_available_bytes - usual.host_processes_bytes
            if free < limit:
                limit, reason = free, f"what is available on {node.name} now"
            mark = min(mark, limit)
        shares.append(max(limit, 0))
        marks.append(max(mark, 0))
    return Budget(told.gpu_memory_utilization or 0.0, tuple(shares), tuple(marks), reason)


def utilization(nodes: Sequence[Node], allowed: Sequence[int]) -> float:
    """The flag's value that lets vLLM take ``allowed`` bytes on each node: one for all, so the smallest.

    Three decimals, rounded up only where that stays below a tenth of a GiB.
    """
    share = min(size / node.memory_total_bytes for node, size in zip(nodes, allowed, strict=True))
    return max(0.01, min(1.0, math.ceil(share * 1000 - 1e-6) / 1000))


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to lie on nodes, weighed: what it needs on each and whether the budget allows it."""

    kind: Kind
    nodes: tuple[Node, ...]
    footprints: tuple[int, ...]
    budget: Budget
    weighed: Any = None

    @property
    def fits(self) -> bool:
        """Whether every node stays within its limit."""
        return self.budget.fits(self.footprints)

    @property
    def comfortable(self) -> bool:
        """Whether every node stays below the mark where warnings begin."""
        return self.budget.comfortable(self.footprints)

    @property
    def allowed_bytes(self) -> tuple[int, ...]:
        """What each node is planned with: the comfortable mark, or the limit where that is not enough."""
        return self.budget.comfortable_bytes if self.comfortable else self.budget.limit_bytes


Weigh = Callable[[Kind, tuple[Node, ...]], tuple[tuple[int, ...], Any]]


def groups(nodes: Sequence[Node], size: int) -> Iterator[tuple[Node, ...]]:
    """Which nodes to try for a layout of ``size``: the first, then, if others hold more, the roomiest."""
    first = tuple(nodes[:size])
    yield first

    def room(node: Node) -> int:
        available = node.memory_available_bytes
        return node.memory_total_bytes if available is None else min(available, node.memory_total_bytes)

    roomiest = sorted(range(len(nodes)), key=lambda index: (-room(nodes[index]), index))[:size]
    best = tuple(nodes[index] for index in sorted(roomiest))
    if best != first:
        yield best


def choose(
    nodes: Sequence[Node], wish: Kind | None, told: Told, weigh: Weigh, most_stages: int
) -> tuple[Layout, list[Layout]]:
    """The layout to take and all that were weighed on the way, in the order of preference.

    ``weigh`` gives footprints for a kind on nodes. ``most_stages`` is 1 for a model vLLM cannot pipeline.
    Nothing fits: the last resort is returned, so that the plan can say by how much it misses.
    """
    weighed: list[Layout] = []

    def attempt(kind: Kind, size: int) -> Iterator[Layout]:
        for group in groups(nodes, size):
            footprints, detail = weigh(kind, group)
            layout = Layout(kind, group, footprints, budget(kind, group, told), detail)
            weighed.append(layout)
            yield layout

    if wish == "tensor":
        return next(attempt("tensor", len(nodes))), weighed
    if wish == "pipeline":
        # All the nodes, as asked; fewer only if a stage more would not fit where one less does.
        for size in range(min(len(nodes), most_stages), 1, -1):
            for layout in attempt("pipeline", size):
                if layout.fits:
                    return layout, weighed
        return weighed[0], weighed
    for layout in attempt("single", 1):
        if layout.fits:
            return layout, weighed
    if wish == "single" or most_stages < 2 or len(nodes) < 2:
        return weighed[0], weighed
    tight: list[Layout] = []
    for size in range(2, min(len(nodes), most_stages) + 1):
        for layout in attempt("pipeline", size):
            if layout.comfortable:
                return layout, weighed
            if layout.fits:
                tight.append(layout)
    return (tight or [weighed[-1]])[0], weighed
