# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a deployment lies on its nodes: one node if it fits, else pipeline over as few as fit.

The module knows nodes, budgets and footprints in bytes and nothing about models: what a layout needs on each
node is given to it. Tensor parallel is never chosen here on its own; it is a wish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a deployment lies. ``nodes[0]`` is the head; ``partition`` is the layers per stage if not vLLM's own."""

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
