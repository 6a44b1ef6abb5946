# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The least change that would make a plan fit. Every way named here was weighed before it is offered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .advice import gib
from .demand import Demand, Scales
from .placement import Layout, Node, Told, budget

SMALLEST_CONTEXT = 2048
MOST_NODES = 16
# Stored bits a weight of what people publish, scales included.
SMALLER_QUANTIZATIONS = (("an FP8", 8.0), ("a 4-bit (NVFP4, AWQ, GPTQ)", 4.5))


def remedies(scales: Scales, layout: Layout, told: Told) -> list[str]:
    """Ways to make ``layout`` fit, the smallest change first; empty when none of the usual ones does."""
    ways = [*_free_memory(layout, told)]
    if sum(layout.footprints) <= sum(layout.budget.limit_bytes):
        ways += _other_split(scales, layout)
    if min(_cache_room(layout)) > 0:
        ways += _fewer_requests(scales, layout)
        ways += _smaller_cache(scales, layout)
        ways += _shorter_context(scales, layout)
    return [*ways, *_more_nodes(scales, layout, told), *_smaller_weights(scales, layout)]


def _cache_room(layout: Layout) -> list[int]:
    """What weights and overhead leave for the cache on each node; negative where they alone are too much."""
    demand: Demand = layout.weighed
    taken = zip(layout.budget.limit_bytes, demand.weights, demand.overhead, strict=True)
    return [limit - weights - overhead for limit, weights, overhead in taken]


def _free_memory(layout: Layout, told: Told) -> Iterator[str]:
    idle = [replace(node, memory_available_bytes=None) for node in layout.nodes]
    busy = [node.name for node in layout.nodes if node.memory_available_bytes is not None]
    if busy and budget(layout.kind, idle, told).fits(layout.footprints):
        yield f"free memory on {' and '.join(busy)}: it would fit if nothing else ran there"


def _other_split(scales: Scales, layout: Layout) -> Iterator[str]:
    better = scales.best_partition(layout)
    if better is not None and better.partition and layout.budget.fits(better.footprints):
        split = ",".join(str(size) for size in better.partition)
        yield f"split the layers otherwise (vllm_extra_env: {{VLLM_PP_LAYER_PARTITION: '{split}'}})"


def _fewer_requests(scales: Scales, layout: Layout) -> Iterator[str]:
    for requests in range(scales.ask.requests - 1, 0, -1):
        if _fits(scales.changed(requests=requests), layout):
            yield f"ask for fewer requests of full length at once (vllm_concurrency: {requests})"
            return


def _smaller_cache(scales: Scales, layout: Layout) -> Iterator[str]:
    if scales.ask.kv_cache_dtype == "auto" and _fits(scales.changed(kv_cache_dtype="fp8"), layout):
        yield "halve the cache (vllm_kv_cache_dtype: fp8)"


def _shorter_context(scales: Scales, layout: Layout) -> Iterator[str]:
    demand: Demand = layout.weighed
    if scales.ask.kv_cache_memory_bytes is not None:
        return
    longest = demand.cache.largest_context(_cache_room(layout), scales.ask.context, scales.ask.requests)
    rounded = longest // 1024 * 1024 if longest > SMALLEST_CONTEXT else longest
    if rounded >= min(SMALLEST_CONTEXT, scales.ask.context):
        yield f"shorten the context (vllm_context: {rounded})"


def _more_nodes(scales: Scales, layout: Layout, told: Told) -> Iterator[str]:
    spare = replace(layout.nodes[0], memory_available_bytes=None)
    roomiest = max(budget("pipeline", [spare], told).limit_bytes)
    alone = scales.demand(1, 1)
    # Fewer cannot hold the weights and a node's own overhead.
    least = -(-sum(alone.weights) // max(roomiest - min(alone.overhead) // 2, 1))
    for count in range(max(len(layout.nodes) + 1, least), min(MOST_NODES, scales.most_stages()) + 1):
        nodes: tuple[Node, ...] = (*layout.nodes, *(spare for _more in range(count - len(layout.nodes))))
        footprints, _demand = scales.weigh("pipeline", nodes)
        if budget("pipeline", nodes, told).fits(footprints):
            yield f"take {count} such nodes in a pipeline ({gib(max(footprints))} on the fullest)"
            return


def _smaller_weights(scales: Scales, layout: Layout) -> Iterator[str]:
    demand: Demand = layout.weighed
    bits = scales.ask.checkpoint.quantization.bits_per_weight
    for name, target in SMALLER_QUANTIZATIONS:
        if target > bits * 0.8:
            continue
        lighter = [int(weights * target / bits) for weights in demand.weights]
        saved = zip(layout.footprints, demand.weights, lighter, strict=True)
        if layout.budget.fits([size - weights + less for size, weights, less in saved]):
            yield f"take {name} quantization of the model (about {gib(sum(lighter))} of weights)"
            return


def _fits(scales: Scales, layout: Layout) -> bool:
    footprints, _demand = scales.weigh(layout.kind, layout.nodes)
    return layout.budget.fits(footprints)
