# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a checkpoint asks of each node under a layout: weights, caches for the asked requests, overhead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from . import advice
from .attention import STATES, layer_caches
from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .knowledge import knowledge
from .kv_cache import KvLayout, state_bytes
from .memory import kv_bytes_per_token, kv_layout, stored_kv_dtype
from .overhead import overhead
from .placement import GIB, Kind, Layout, Node
from .speed import Decoding, Speed, decode_speed, usual_depth
from .weights import active_weight_bytes, split_layers, stage_weights, weigh
from .wishes import Speculative, Wishes

PARTITION = "VLLM_PP_LAYER_PARTITION"
WORTH_MOVING_BYTES = 2 * GIB
# Layers that carry a state from token to token instead of looking back.
RECURRENT = frozenset({"linear_attention", "mamba", "hybrid", "conv", "rg_lru"})


@dataclass(frozen=True, slots=True)
class Ask:
    """What is settled before anybody looks at nodes. ``requests`` of ``context`` tokens must fit at once."""

    checkpoint: Checkpoint
    version: str
    context: int
    requests: int
    sequences: int
    batched_tokens: int
    kv_cache_dtype: str
    prefix_caching: bool | None
    speculative: Speculative | None
    kv_cache_memory_bytes: int | None
    enforce_eager: bool
    partition: tuple[int, ...] | None

    @classmethod
    def of(cls, checkpoint: Checkpoint, wishes: Wishes, engine: Any, version: str) -> Ask:
        """From wishes and engine settings. One request must fit, as vLLM demands, unless more are asked."""
        return cls(
            checkpoint=checkpoint,
            version=version,
            context=engine.context,
            requests=wishes.concurrency or 1,
            sequences=engine.max_num_seqs,
            batched_tokens=engine.max_num_batched_tokens,
            kv_cache_dtype=engine.kv_cache_dtype,
            prefix_caching=engine.prefix_caching,
            speculative=_with_own_draft(wishes.speculative, checkpoint),
            kv_cache_memory_bytes=wishes.kv_cache_memory_bytes,
            enforce_eager="--enforce-eager" in wishes.extra_args,
            partition=_partition(wishes.extra_env.get(PARTITION)),
        )


def _with_own_draft(speculative: Speculative | None, checkpoint: Checkpoint) -> Speculative | None:
    """Multi-token prediction drafts with the checkpoint's own layers, which are loaded only then."""
    if speculative is None or speculative.draft_weight_bytes is not None:
        return speculative
    if "mtp" not in speculative.method:
        return speculative
    return replace(speculative, draft_weight_bytes=round(weigh(checkpoint).mtp.bytes))


def _partition(text: str | None) -> tuple[int, ...] | None:
    if not text:
        return None
    sizes = [size.strip() for size in text.split(",")]
    if not all(size.isdigit() for size in sizes):
        raise InputError(f"extra_env.{PARTITION}", f"expected numbers of layers with commas, as 31,30; got {text!r}")
    return tuple(int(size) for size in sizes)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a layout takes on each of its nodes, in bytes; ``kv`` and ``states`` for the asked requests.

    ``spare`` is the block of the cache that vLLM never hands out.
    """

    pipeline: int
    tensor: int
    partition: tuple[int, ...] | None
    bounds: tuple[tuple[int, int], ...]
    cache: KvLayout
    weights: tuple[int, ...]
    kv: tuple[int, ...]
    states: tuple[int, ...]
    overhead: tuple[int, ...]
    spare: tuple[int, ...]

    @property
    def footprints(self) -> tuple[int, ...]:
        """All of it, node by node."""
        parts = (self.weights, self.kv, self.states, self.overhead, self.spare)
        return tuple(map(sum, zip(*parts, strict=True)))

    def cache_room(self, nodes: Sequence[Node], share: float, kv_cache_memory_bytes: int | None) -> tuple[int, ...]:
        """Bytes vLLM has for the cache on each node: what the share leaves, or what was asked for."""
        if kv_cache_memory_bytes is not None:
            return (kv_cache_memory_bytes,) * len(nodes)
        taken = zip(nodes, self.weights, self.overhead, strict=True)
        return tuple(
            max(0, int(share * node.memory_total_bytes) - weights - overhead) for node, weights, overhead in taken
        )


class Scales:
    """Weighs layouts of one ask; each size is weighed once."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._known: dict[tuple[int, int, tuple[int, ...] | None], Demand] = {}

    def most_stages(self) -> int:
        """How many pipeline stages vLLM allows: one a layer, or one if the architecture cannot be cut."""
        return 1 if cannot_pipeline(self.ask.checkpoint.architecture) else self.ask.checkpoint.layers

    def weigh(self, kind: Kind, nodes: Sequence[Node]) -> tuple[tuple[int, ...], Demand]:
        """Footprint on each node, and what it is made of."""
        count = len(nodes)
        demand = self.demand(count if kind == "pipeline" else 1, count if kind == "tensor" else 1)
        return demand.footprints, demand

    def demand(self, pipeline: int, tensor: int, partition: tuple[int, ...] | None = None) -> Demand:
        """What ``pipeline`` x ``tensor`` nodes need; ``partition`` is the layers of each stage."""
        if partition is None and self.ask.partition and len(self.ask.partition) == pipeline:
            partition = self.ask.partition
        key = (pipeline, tensor, partition)
        if key not in self._known:
            self._known[key] = self._demand(pipeline, tensor, partition)
        return self._known[key]

    def _demand(self, pipeline: int, tensor: int, partition: tuple[int, ...] | None) -> Demand:
        ask, checkpoint = self.ask, self.ask.checkpoint
        cache = kv_layout(
            checkpoint,
            pipeline,
            tensor,
            partition,
            ask.kv_cache_dtype,
            ask.batched_tokens,
            ask.prefix_caching,
            ask.speculative,
            ask.version,
            context=ask.context,
        )
        whole, states = cache.request_bytes(ask.context), cache.request_state_bytes(ask.context)
        states = tuple(ask.requests * size for size in states)
        kv = tuple(ask.requests * size - state for size, state in zip(whole, states, strict=True))
        if ask.kv_cache_memory_bytes is not None:
            # The cache is then as large as asked, whatever the requests need.
            kv = tuple(max(size, ask.kv_cache_memory_bytes - state) for size, state in zip(kv, states, strict=True))
        bounds = split_layers(checkpoint.layers, pipeline, partition)
        return Demand(
            pipeline=pipeline,
            tensor=tensor,
            partition=partition,
            bounds=tuple(bound for bound in bounds for _rank in range(tensor)),
            cache=cache,
            weights=stage_weights(checkpoint, pipeline, tensor, partition),
            kv=kv,
            states=states,
            overhead=self._overhead(pipeline, tensor),
            spare=cache.null_block_bytes if cache.rules.on("null_block_reserved") else (0,) * len(whole),
        )

    def _overhead(self, pipeline: int, tensor: int) -> tuple[int, ...]:
        ask = self.ask
        ranks = overhead(
            ask.checkpoint,
            pipeline,
            tensor,
            ask.batched_tokens,
            ask.sequences,
            ask.context,
            ask.speculative,
            ask.enforce_eager,
        )
        return tuple(rank.total_bytes for rank in ranks)

    def changed(self, **changes: Any) -> Scales:
        """Scales for the same ask but for some fields."""
        return Scales(replace(self.ask, **changes))

    def largest_context(self, demand: Demand, room: Sequence[int]) -> int:
        """The longest context, up to the native one, whose requests fit into ``room`` bytes on each node."""
        limit = max(self.ask.checkpoint.native_context or 0, self.ask.context)
        if demand.cache.fits(room, limit, self.ask.requests):
            return limit
        return demand.cache.largest_context(room, limit, self.ask.requests)

    def speed(self, nodes: Sequence[Node], pipeline: int, tensor: int, depth_tokens: int | None = None) -> Speed:
        """How fast one stream decodes on ``nodes``, at the usual depth or at ``depth_tokens``."""
        return decode_speed(
            self.decoding,
            min(node.bandwidth_gb_s for node in nodes),
            pipeline,
            tensor,
            min(depth_tokens or usual_depth(), self.ask.context),
            enforce_eager=self.ask.enforce_eager,
            speculative_tokens=self.ask.speculative.num_tokens if self.ask.speculative else 0,
        )

    @cached_property
    def decoding(self) -> Decoding:
        """What a token of this checkpoint reads."""
        return decoding_of(self.ask.checkpoint, self.ask.kv_cache_dtype)

    def balance(self, layout: Layout) -> list[Finding]:
        """A better split of a layout that fits, if one takes 2 GiB off the fullest node."""
        if not layout.fits or max(layout.footprints) - min(layout.footprints) < WORTH_MOVING_BYTES:
            return []
        better = self.best_partition(layout)
        saved = max(layout.footprints) - max(better.footprints) if better else 0
        if better is None or not better.partition or saved < WORTH_MOVING_BYTES:
            return []
        return [advice.better_split(better.partition, saved)]

    def best_partition(self, layout: Layout) -> Demand | None:
        """The split whose fullest node is lightest; None if that is vLLM's own, or the user has set one."""
        usual: Demand = layout.weighed
        if usual.pipeline < 2 or self.ask.partition:
            return None
        cache = sum(usual.kv) + sum(usual.states)
        share = cache / self.ask.checkpoint.layers
        costs = [part.bytes + share for part in weigh(self.ask.checkpoint).layers]
        fixed = [
            footprint - sum(costs[first:end])
            for footprint, (first, end) in zip(usual.footprints, usual.bounds, strict=True)
        ]
        sizes = balanced(costs, fixed)
        if sizes == tuple(end - first for first, end in usual.bounds):
            return None
        better = self.demand(usual.pipeline, 1, sizes)
        return better if max(better.footprints) < max(usual.footprints) else None


def balanced(costs: Sequence[float], fixed: Sequence[float]) -> tuple[int, ...]:
    """How many layers in a row each stage takes so that the heaviest stage is as light as can be.

    ``costs`` are the layers', ``fixed`` what a stage carries whatever its layers.
    """
    low, high = 0.0, sum(costs) + max(fixed)
    best: tuple[int, ...] = ()
    for _halving in range(24):
        cap = (low + high) / 2
        sizes = _filled(costs, fixed, cap)
        if sizes is None:
            low = cap
        else:
            best, high = sizes, cap
    return best


def _filled(costs: Sequence[float], fixed: Sequence[float], cap: float) -> tuple[int, ...] | None:
    """Layers per stage, each stage filled up to ``cap``; None if some layer is left over."""
    sizes, layer = [], 0
    for stage, carried in enumerate(fixed):
        keep = len(fixed) - stage - 1  # one layer at least for each stage to come
        room, size = cap - carried, 0
        while layer < len(costs) - keep and (costs[layer] <= room or not size):
            if costs[layer] > room:
                return None
            room -= costs[layer]
            layer, size = layer + 1, size + 1
        sizes.append(size)
    return tuple(sizes) if layer == len(costs) else None


def tensor_sizes(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Numbers of nodes that tensor parallel can use."""
    return tuple(size for size in (2, 3, 4, 6, 8) if divides(checkpoint, size))


def divides(checkpoint: Checkpoint, size: int) -> bool:
    """Whether the heads split over ``size`` ranks: query heads evenly, KV heads evenly or copied evenly."""
    heads = checkpoint.text.get("num_attention_heads")
    kv_heads = checkpoint.text.get("num_key_value_heads")
    if not isinstance(heads, int) or heads < 1:
        return True
    if heads % size:
        return False
    return not isinstance(kv_heads, int) or kv_heads < 1 or not kv_heads % size or not size % kv_heads


def cannot_pipeline(architecture: str) -> bool:
    """Whether vLLM refuses to cut this architecture into stages."""
    return architecture in knowledge("pipeline")["unsupported"]


def decoding_of(checkpoint: Checkpoint, kv_cache_dtype: str = "auto") -> Decoding:
    """Bytes and blocks of one decoded token."""
    active = active_weight_bytes(checkpoint)
    blocks = Counter("moe" if kind.mlp == "sparse" else "mlp" for kind in checkpoint.kinds if kind.mlp != "none")
    mixers = Counter(
        "recurrent" if kind.mixer in RECURRENT else "attention" for kind in checkpoint.kinds if kind.mixer != "none"
    )
    caches = layer_caches(checkpoint)
    states = sum(
        state_bytes(cache, 1, 0, checkpoint.dtype_bytes, None)
        for cache in caches
        if cache.kind in STATES and not cache.draft
    )
    stored = stored_kv_dtype(checkpoint, kv_cache_dtype, caches)
    return Decoding(
        quantized_bytes=active.quantized,
        unquantized_bytes=active.unquantized,
        format=checkpoint.quantization.format,
        blocks={**blocks, **mixers},
        kv_bytes_per_token=kv_bytes_per_token(checkpoint, stored),
        kv_fixed_bytes=2 * states,  # read and written
    )
