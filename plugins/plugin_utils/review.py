# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Looks at a layout that was chosen and says what one should know about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from . import advice
from .attention import attention_kinds
from .demand import Demand, Scales, divides, tensor_sizes
from .findings import Finding
from .memory import load_transient_bytes
from .placement import Layout, Told, budget, limits
from .remedies import remedies
from .speed import Speed
from .versions import version
from .weights import active_weight_bytes
from .wishes import Wishes

# The first version whose draft classes can be cut into stages.
DRAFTS_IN_STAGES = "0.33.0"
# Attention whose kernels may exceed the shared memory of SM 12.1.
KERNELS_TO_TRY = frozenset({"mla", "gdn", "kda", "linear"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """A chosen layout and what follows from it. ``room_bytes`` is what each node has for the cache."""

    layout: Layout
    told: Told
    runs: bool
    room_bytes: tuple[int, ...]
    concurrency: float
    largest_context: int
    speed: Speed

    @property
    def demand(self) -> Demand:
        """What the layout needs."""
        demand: Demand = self.layout.weighed
        return demand


def review(scales: Scales, wish: Wishes, outcome: Outcome) -> Iterator[Finding]:
    """Everything to say about placement, memory and speed."""
    yield from _placement(scales, wish, outcome)
    yield from _fit(scales, outcome)
    yield from _nodes(wish, outcome)
    yield from _model(scales, outcome)
    yield from _more(scales, wish, outcome)


def _placement(scales: Scales, wish: Wishes, outcome: Outcome) -> Iterator[Finding]:
    checkpoint, layout = scales.ask.checkpoint, outcome.layout
    count = len(layout.nodes)
    stuck = layout.kind == "single" and not layout.fits and wish.placement is None
    if not outcome.runs or (stuck and scales.most_stages() < 2):
        sizes = tensor_sizes(checkpoint)
        yield advice.pipeline_refused(checkpoint.architecture, not outcome.runs, sizes)
    if layout.kind == "tensor":
        yield advice.tensor_chosen(count, all(node.rdma_devices for node in layout.nodes))
    if layout.kind == "pipeline":
        if layout.fits and divides(checkpoint, count):
            faster = scales.speed(layout.nodes, 1, count)
            yield advice.tensor_offered(count, faster.expected, outcome.speed.expected)
        yield from scales.balance(layout)
        loader = any("fastsafetensors" in word for word in wish.extra_args)
        young = version(scales.ask.version) < version(DRAFTS_IN_STAGES)
        if wish.speculative is not None and (loader or young):
            yield advice.draft_in_a_pipeline(scales.ask.version)
    if count > 1:
        alone = layout.nodes[:1]
        footprints, _demand = scales.weigh("single", alone)
        yield advice.sustained_load(budget("single", alone, outcome.told).fits(footprints))


def _fit(scales: Scales, outcome: Outcome) -> Iterator[Finding]:
    ask, layout = scales.ask, outcome.layout
    if not layout.fits:
        yield advice.does_not_fit(layout, remedies(scales, layout, outcome.told))
    elif not outcome.demand.cache.fits(outcome.room_bytes, ask.context, ask.requests):
        yield advice.cache_too_small(outcome.concurrency, ask.requests, ask.context, outcome.largest_context)
    elif not layout.comfortable:
        yield advice.near_the_limit(layout)


def _nodes(wish: Wishes, outcome: Outcome) -> Iterator[Finding]:
    layout, reserve = outcome.layout, limits().operating_system_reserve_bytes
    assumed = [node for node in layout.nodes if not node.measured]
    if assumed:
        yield advice.assumed_nodes(assumed)
    asked = wish.gpu_memory_utilization
    idle = [replace(node, memory_available_bytes=None) for node in layout.nodes]
    usual = budget(layout.kind, idle, outcome.told).limit_bytes
    for index, node in enumerate(layout.nodes):
        if asked is not None and (node.memory_available_bytes or node.memory_total_bytes) < int(
            asked * node.memory_total_bytes
        ):
            yield advice.less_available_than_asked(node, asked)
        elif layout.budget.limit_bytes[index] < usual[index]:
            yield advice.memory_in_use(node, usual[index], layout.budget)
        if asked is not None and node.memory_total_bytes * (1 - asked) < reserve:
            yield advice.beyond_the_reserve(node, asked, reserve)
        weights = outcome.demand.weights[index]
        peak = weights + load_transient_bytes(weights)
        if layout.fits and peak > node.memory_total_bytes - reserve:
            yield advice.loading_peak(node, peak, peak - weights)


def _model(scales: Scales, outcome: Outcome) -> Iterator[Finding]:
    checkpoint = scales.ask.checkpoint
    if checkpoint.sparsity == "dense":
        active = active_weight_bytes(checkpoint).total
        yield advice.dense(outcome.speed.expected, active, checkpoint.quantization.bits_per_weight)
    to_try = [kind for kind in attention_kinds(checkpoint) if kind in KERNELS_TO_TRY]
    if to_try:
        yield advice.kernels_to_try(to_try)


def _more(scales: Scales, wish: Wishes, outcome: Outcome) -> Iterator[Finding]:
    ask = scales.ask
    if not outcome.layout.fits:
        return
    if outcome.concurrency < ask.sequences:
        yield advice.few_at_once(outcome.concurrency, ask.sequences, ask.context)
    if wish.context is None and outcome.largest_context > ask.context:
        yield advice.context_can_grow(ask.context, outcome.largest_context, ask.checkpoint.native_context)
