# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a checkpoint and nodes to a plan: the rooms of the planner put together.

Nothing is worked out here that has a room of its own: this module asks for weights, caches, placement, flags
and speed, and puts the answers into the contract's shape. What follows from them in words is in advice.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import advice
from .attention import attention_kinds
from .checkpoint import Checkpoint, InputError, read_checkpoint
from .demand import Ask, Demand, Scales
from .engine import engine_settings
from .findings import Finding, by_severity
from .images import choose_image
from .memory import kv_bytes_per_token, load_transient_bytes, memory_findings
from .placement import Kind, Layout, Node, Placement, Told, budget, choose, limits, read_nodes, utilization
from .remedies import remedies
from .serving import serve_spec
from .speed import Speed, decode_speed, usual_depth
from .versions import version
from .weights import Weights, active_weight_bytes, weigh, weight_findings
from .wishes import Wishes, read_wishes

DEFAULT_LAUNCHER = "ray"
# Attention whose kernels may exceed the shared memory of SM 12.1.
DRAFTS_IN_STAGES = "0.33.0"
KERNELS_TO_TRY = frozenset({"mla", "gdn", "kda", "linear"})


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
    weights = weigh(checkpoint)
    speed = _speed(scales, layout.nodes, demand.pipeline, demand.tensor)
    deep = _speed(scales, layout.nodes, demand.pipeline, demand.tensor, engine.context)
    concurrency = demand.cache.concurrency(available, engine.context)
    largest = scales.largest_context(demand, available)
    findings = [
        *checkpoint.unknowns,
        *weight_findings(checkpoint),
        *memory_findings(checkpoint, engine.kv_cache_dtype, wish.speculative, image.version),
        *spec.findings,
        *_placement_findings(scales, layout, tried, wish, most, speed),
        *_memory_findings(scales, layout, told, wish, concurrency, largest, available),
    ]
    if not runs:
        findings.append(advice.pipeline_refused(checkpoint.architecture, True, _tensor_sizes(checkpoint)))
    if checkpoint.sparsity == "dense":
        active = active_weight_bytes(checkpoint).total
        findings.append(advice.dense(speed.expected, active, checkpoint.quantization.bits_per_weight))
    to_try = [kind for kind in attention_kinds(checkpoint) if kind in KERNELS_TO_TRY]
    if to_try:
        findings.append(advice.kernels_to_try(to_try))
    return {
        "fits": fits and not any(finding.level == "error" for finding in findings),
        "placement": placement.as_dict(),
        "model": _model(checkpoint, weights, spec.thinking, spec.remote_code),
        "memory": {
            "kv_bytes_per_token": kv_bytes_per_token(checkpoint, engine.kv_cache_dtype),
            "context": engine.context,
            "concurrency": _finite(concurrency),
            "kv_tokens": demand.cache.kv_tokens(available, engine.context),
            "largest_context": largest,
            "gpu_memory_utilization": share,
            "nodes": _memory_nodes(layout, demand),
        },
        "serve": spec.as_dict(),
        "speed": {**speed.as_dict(), "at_full_context": deep.rates()},
        "findings": [finding.as_dict() for finding in by_severity(_once(findings))],
    }


def _once(findings: list[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))


def _finite(value: float) -> float:
    """A model without a cache serves as many requests as one likes; JSON has no infinity."""
    return value if value != float("inf") else 1e9


def _tensor_sizes(checkpoint: Checkpoint) -> tuple[int, ...]:
    return tuple(size for size in (2, 3, 4, 6, 8) if _divides(checkpoint, size))


def _divides(checkpoint: Checkpoint, size: int) -> bool:
    """Whether the heads split over ``size`` ranks: query heads evenly, KV heads evenly or copied evenly."""
    heads = checkpoint.text.get("num_attention_heads")
    kv_heads = checkpoint.text.get("num_key_value_heads")
    if not isinstance(heads, int) or heads < 1:
        return True
    if heads % size:
        return False
    return not isinstance(kv_heads, int) or kv_heads < 1 or not kv_heads % size or not size % kv_heads


def _check_placement(checkpoint: Checkpoint, wish: Wishes, nodes: tuple[Node, ...]) -> None:
    """Wishes that cannot come true (vLLM 0.33, config/model.py, verify_with_parallel_config)."""
    smallest = min(node.memory_total_bytes for node in nodes)
    if wish.reserve_bytes is not None and wish.reserve_bytes >= smallest:
        raise InputError(
            "reserve_bytes", f"expected less than a node's memory of {smallest}, got {wish.reserve_bytes}"
        )
    if wish.placement in ("pipeline", "tensor") and len(nodes) < 2:
        raise InputError("placement", f"expected at least two nodes for {wish.placement}, got one")
    if wish.placement == "tensor" and not _divides(checkpoint, len(nodes)):
        sizes = ", ".join(str(size) for size in _tensor_sizes(checkpoint)) or "none"
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
    holds = f"{advice.gib(need)} of {advice.gib(limit)}"
    if wish.placement:
        return f"{layout.kind} as asked; the fullest node holds {holds}"
    if layout.kind == "single":
        if fits:
            return f"one node holds it ({holds}), which needs no fabric and bears sustained load"
        if most < 2:
            return f"one node would need {holds}, and vLLM cannot cut this architecture into stages"
        return f"one node would need {holds}, and there is no other"
    single = tried[0]
    alone = f"{advice.gib(single.footprints[0])} of {advice.gib(single.budget.limit_bytes[0])}"
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


def _speed(
    scales: Scales, nodes: tuple[Node, ...], pipeline: int, tensor: int, depth_tokens: int | None = None
) -> Speed:
    return decode_speed(
        scales.decoding,
        min(node.bandwidth_gb_s for node in nodes),
        pipeline,
        tensor,
        min(depth_tokens or usual_depth(), scales.ask.context),
        enforce_eager=scales.ask.enforce_eager,
        speculative_tokens=scales.ask.speculative.num_tokens if scales.ask.speculative else 0,
    )


def _placement_findings(
    scales: Scales, layout: Layout, tried: list[Layout], wish: Wishes, most: int, speed: Speed
) -> list[Finding]:
    checkpoint, count = scales.ask.checkpoint, len(layout.nodes)
    found = []
    assumed = [node for node in layout.nodes if not node.measured]
    if assumed:
        found.append(advice.assumed_nodes(assumed))
    if layout.kind == "tensor":
        found.append(advice.tensor_chosen(count, all(node.rdma_devices for node in layout.nodes)))
    if layout.kind == "pipeline":
        if layout.fits and _divides(checkpoint, count):
            other = _speed(scales, layout.nodes, 1, count)
            found.append(advice.tensor_offered(count, other.expected, speed.expected))
        found += scales.balance(layout)
        fast = any("fastsafetensors" in word for word in wish.extra_args)
        if wish.speculative is not None and (fast or version(scales.ask.version) < version(DRAFTS_IN_STAGES)):
            found.append(advice.draft_in_a_pipeline(scales.ask.version))
    if count > 1:
        one = layout.nodes[:1]
        footprints, _demand = scales.weigh("single", one)
        told = Told(wish.gpu_memory_utilization, wish.reserve_bytes, wish.footprint_limit_bytes)
        found.append(advice.sustained_load(budget("single", one, told).fits(footprints)))
    if layout.kind == "single" and not layout.fits and most < 2 and wish.placement is None:
        found.append(advice.pipeline_refused(checkpoint.architecture, False, _tensor_sizes(checkpoint)))
    return found


def _memory_findings(
    scales: Scales,
    layout: Layout,
    told: Told,
    wish: Wishes,
    concurrency: float,
    largest: int,
    available: tuple[int, ...],
) -> list[Finding]:
    ask = scales.ask
    found = []
    if not layout.fits:
        found.append(advice.does_not_fit(layout, remedies(scales, layout, told)))
    elif not layout.weighed.cache.fits(available, ask.context, ask.requests):
        found.append(advice.cache_too_small(concurrency, ask.requests, ask.context, largest))
    elif not layout.comfortable:
        found.append(advice.near_the_limit(layout))
    usual = budget(layout.kind, [_idle(node) for node in layout.nodes], told)
    for node, now, then in zip(layout.nodes, layout.budget.limit_bytes, usual.limit_bytes, strict=True):
        if now < then:
            found.append(advice.memory_in_use(node, then, layout.budget))
        asked = wish.gpu_memory_utilization
        reserve = limits().operating_system_reserve_bytes
        if asked is not None and node.memory_total_bytes * (1 - asked) < reserve:
            found.append(advice.beyond_the_reserve(node, asked, reserve))
    for node, weights in zip(layout.nodes, layout.weighed.weights, strict=True):
        transient = load_transient_bytes(weights)
        peak = weights + transient
        if layout.fits and peak > node.memory_total_bytes - limits().operating_system_reserve_bytes:
            found.append(advice.loading_peak(node, peak, transient))
    if layout.fits and concurrency < ask.sequences:
        found.append(advice.few_at_once(concurrency, ask.sequences, ask.context))
    if layout.fits and wish.context is None and largest > ask.context:
        found.append(advice.context_can_grow(ask.context, largest, ask.checkpoint.native_context))
    return found


def _idle(node: Node) -> Node:
    return Node(node.name, node.memory_total_bytes)
