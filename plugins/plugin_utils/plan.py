# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a checkpoint and nodes to a plan: the rooms of the planner put together.

Nothing is worked out here that has a room of its own: this module asks for weights, caches, placement, flags
and speed, and puts the answers into the contract's shape. What follows from them in words is in advice.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .advice import gib
from .attention import attention_kinds
from .checkpoint import Checkpoint, InputError, read_checkpoint
from .demand import Ask, Demand, Scales, divides, tensor_sizes
from .engine import engine_settings
from .findings import Finding, by_severity
from .images import choose_image
from .memory import kv_bytes_per_token, memory_findings
from .placement import Kind, Layout, Node, Placement, Told, choose, read_nodes, utilization
from .review import Outcome, review
from .serving import serve_spec
from .weights import Weights, weigh, weight_findings
from .wishes import Wishes, read_wishes

# Proven between Sparks for a pipeline (field notes, 2026); vLLM's own executor is a wish away.
DEFAULT_LAUNCHER = "ray"


def make_plan(model: Mapping[str, Any], nodes: Any, **wishes: Any) -> dict[str, Any]:
    """The plan filter's contract: whether and how ``model`` lies on ``nodes``, as a plain dict.

    Raises InputError for bad input alone; what does not fit comes back whole with ``fits: false``.
    """
    wish = read_wishes(**wishes)
    sparks = read_nodes(nodes)
    checkpoint = read_checkpoint(model)
    image = choose_image(checkpoint, wish)
    engine = engine_settings(checkpoint, wish, image)
    scales = Scales(Ask.of(checkpoint, wish, engine, image.version))
    told = Told(wish.gpu_memory_utilization, wish.reserve_bytes, wish.footprint_limit_bytes)
    most = scales.most_stages()
    _check_placement(checkpoint, wish, sparks)

    stages_asked = wish.placement == "pipeline"
    kind_wish: Kind | None = "single" if stages_asked and most < 2 else wish.placement  # type: ignore[assignment]
    layout, tried = choose(sparks, kind_wish, told, scales.weigh, most)
    demand: Demand = layout.weighed
    runs = not (stages_asked and most < 2)
    fits = layout.fits and runs

    share, share_reason = _utilization(layout, wish)
    available = demand.cache_room(layout.nodes, share, wish.kv_cache_memory_bytes)
    placement = Placement(
        kind=layout.kind,
        nodes=tuple(node.name for node in layout.nodes),
        pipeline_parallel_size=demand.pipeline,
        tensor_parallel_size=demand.tensor,
        launcher=_launcher(wish, layout),
        reason=_reason(layout, tried, wish, most, fits),
        partition=demand.partition,
    )
    spec = serve_spec(
        checkpoint,
        wish,
        image,
        engine,
        placement,
        layout.nodes,
        gpu_memory_utilization=share,
        utilization_reason=share_reason,
        parser_files=model.get("parser_files"),
    )
    outcome = Outcome(
        layout=layout,
        told=told,
        runs=runs,
        room_bytes=available,
        concurrency=demand.cache.concurrency(available, engine.context),
        largest_context=scales.largest_context(demand, available),
        speed=scales.speed(layout.nodes, demand.pipeline, demand.tensor),
    )
    findings = [
        *checkpoint.unknowns,
        *weight_findings(checkpoint),
        *memory_findings(checkpoint, engine.kv_cache_dtype, wish.speculative, image.version),
        *spec.findings,
        *review(scales, wish, outcome),
    ]
    return {
        "fits": fits and not any(finding.level == "error" for finding in findings),
        "placement": placement.as_dict(),
        "model": _model(checkpoint, weigh(checkpoint), spec.thinking, spec.remote_code),
        "memory": {
            "kv_bytes_per_token": kv_bytes_per_token(checkpoint, engine.kv_cache_dtype),
            "context": engine.context,
            "concurrency": _finite(outcome.concurrency),
            "kv_tokens": demand.cache.kv_tokens(available, engine.context),
            "largest_context": outcome.largest_context,
            "gpu_memory_utilization": share,
            "nodes": _memory_nodes(layout, demand),
        },
        "serve": spec.as_dict(),
        "speed": _speed(scales, outcome),
        "findings": [finding.as_dict() for finding in by_severity(_once(findings))],
    }


def _once(findings: list[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))


def _finite(value: float) -> float:
    """A model without a cache serves as many requests as one likes; JSON has no infinity."""
    return value if value != float("inf") else 1e9


def _check_placement(checkpoint: Checkpoint, wish: Wishes, nodes: tuple[Node, ...]) -> None:
    """Wishes that cannot come true (vLLM 0.33, config/model.py, verify_with_parallel_config)."""
    smallest = min(node.memory_total_bytes for node in nodes)
    if wish.reserve_bytes is not None and wish.reserve_bytes >= smallest:
        raise InputError("reserve_bytes", f"expected less than a node's memory of {smallest}, got {wish.reserve_bytes}")
    if wish.placement in ("pipeline", "tensor") and len(nodes) < 2:
        raise InputError("placement", f"expected at least two nodes for {wish.placement}, got one")
    if wish.placement == "tensor" and not divides(checkpoint, len(nodes)):
        sizes = ", ".join(str(size) for size in tensor_sizes(checkpoint)) or "none"
        heads, kv_heads = (checkpoint.text.get(key) for key in ("num_attention_heads", "num_key_value_heads"))
        raise InputError(
            "placement",
            f"tensor over {len(nodes)} nodes does not divide {heads} attention heads and {kv_heads} KV heads;"
            f" expected one of these numbers of nodes: {sizes}",
        )
    if wish.placement == "pipeline" and checkpoint.layers < len(nodes):
        raise InputError(
            "placement",
            f"expected at most {checkpoint.layers} nodes for pipeline, one a layer; got {len(nodes)}",
        )


def _launcher(wish: Wishes, layout: Layout) -> Any:
    if layout.kind == "single":
        return "mp"
    return wish.launcher or DEFAULT_LAUNCHER


def _reason(layout: Layout, tried: list[Layout], wish: Wishes, most: int, fits: bool) -> str:
    """Why this placement: what was asked, or what was tried and how it came out."""
    need, limit = max(zip(layout.footprints, layout.allowed_bytes, strict=True))
    holds = f"{gib(need)} of {gib(limit)}"
    if wish.placement == "pipeline" and layout.kind == "single":
        return "a pipeline was asked for, and vLLM cannot cut this architecture into stages"
    if wish.placement:
        return f"{layout.kind} as asked; the fullest node holds {holds}"
    if layout.kind == "single":
        if fits:
            return f"one node holds it ({holds}), which needs no fabric and bears sustained load"
        if most < 2:
            return f"one node would need {holds}, and vLLM cannot cut this architecture into stages"
        return f"one node would need {holds}, and there is no other"
    single = tried[0]
    alone = f"{gib(single.footprints[0])} of {gib(single.budget.limit_bytes[0])}"
    return (
        f"one node would need {alone}; {len(layout.nodes)} stages hold {holds} on the fullest node,"
        " and a pipeline passes little over the link"
    )


def _utilization(layout: Layout, wish: Wishes) -> tuple[float, str]:
    """The share of memory vLLM is told to take, and why."""
    if wish.gpu_memory_utilization is not None:
        return wish.gpu_memory_utilization, "as asked"
    return utilization(layout.nodes, layout.allowed_bytes), layout.budget.reason


def _memory_nodes(layout: Layout, demand: Demand) -> list[dict[str, Any]]:
    rows = []
    for index, node in enumerate(layout.nodes):
        footprint = layout.footprints[index]
        rows.append(
            {
                "name": node.name,
                "layers": list(demand.bounds[index]),
                "weight_bytes": demand.weights[index],
                "kv_bytes": demand.kv[index],
                "state_bytes": demand.states[index],
                "overhead_bytes": demand.overhead[index] + demand.spare[index],
                "footprint_bytes": footprint,
                "headroom_bytes": layout.allowed_bytes[index] - footprint,
                "memory_total_bytes": node.memory_total_bytes,
            }
        )
    return rows


def _model(checkpoint: Checkpoint, weights: Weights, thinking: str, remote_code: bool) -> dict[str, Any]:
    quantization = checkpoint.quantization
    return {
        "id": checkpoint.id,
        "architecture": checkpoint.architecture,
        "family": checkpoint.family,
        "sparsity": checkpoint.sparsity,
        "attention": list(attention_kinds(checkpoint)),
        "parameters": weights.parameters,
        "active_parameters": weights.active_parameters,
        "native_context": checkpoint.native_context,
        "quantization": quantization.format,
        "bits_per_weight": round(quantization.bits_per_weight, 3),
        "thinking": thinking,
        "remote_code": remote_code,
        "multimodal": checkpoint.multimodal,
    }


def _speed(scales: Scales, outcome: Outcome) -> dict[str, Any]:
    demand = outcome.demand
    full = scales.speed(outcome.layout.nodes, demand.pipeline, demand.tensor, scales.ask.context)
    return {**outcome.speed.as_dict(), "at_full_context": full.rates()}
