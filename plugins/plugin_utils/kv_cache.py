# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pages, groups and blocks: how vLLM lays the caches of a model into the memory it has for them.

Every layer's cache is cut into pages of one block of tokens; pages are made equally large, layers of one kind
are dealt into groups of equal size, and a block is one page of every layer of a group. Formulas of vLLM 0.19
to 0.33 (v1/core/kv_cache_utils.py, kv_cache_planning.py in 0.33; v1/kv_cache_interface.py;
platforms/interface.py); what changed between versions is in knowledge/kv_cache.yml. Sizes are bytes a rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import lcm
from typing import Any

from .attention import STATES, LayerCache
from .checkpoint import InputError
from .knowledge import knowledge
from .versions import holds


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


@dataclass(frozen=True, slots=True)
class KvDtype:
    """A KV cache format: bytes of an element, or what replaces them."""

    name: str
    element_bytes: int
    half: bool = False
    scale_every: int = 0
    scale_bytes_per_head: int = 0
    latent_row: int = 0
    compressed_row: int = 0
    alignment: int = 0


@lru_cache(maxsize=64)
def kv_dtype(name: str, model_dtype_bytes: int = 2) -> KvDtype:
    """The format ``--kv-cache-dtype`` names; ``auto`` is the dtype the model runs in."""
    row = knowledge("kv_cache")["dtypes"]["names"].get(name)
    if row is None:
        expected = ", ".join(knowledge("kv_cache")["dtypes"]["names"])
        raise InputError("kv_cache_dtype", f"expected one of {expected}; got {name!r}")
    size = row.get("bytes", 1)
    return KvDtype(
        name,
        model_dtype_bytes if size == "model" else int(size),
        bool(row.get("half")),
        int(row.get("scale_every", 0)),
        int(row.get("scale_bytes_per_head", 0)),
        int(row.get("latent_row", 0)),
        int(row.get("compressed_row", 0)),
        int(row.get("alignment", 0)),
    )


def token_bytes(cache: LayerCache, dtype: KvDtype, tensor: int = 1) -> int:
    """Bytes of one stored row of a cache that holds tokens (``compress_ratio`` tokens)."""
    if cache.kind in ("mla", "sliding-mla") and cache.element_bytes is None:
        compressed = cache.block is not None
        row = dtype.compressed_row if compressed else dtype.latent_row
        return row or cache.head_dim * dtype.element_bytes
    if cache.element_bytes is not None:
        return cache.head_dim * cache.element_bytes
    heads = max(1, cache.kv_heads // tensor)

    def packed(width: int) -> int:
        if dtype.half:
            return width // 2 + (width // dtype.scale_every if dtype.scale_every else 0)
        return width * dtype.element_bytes

    return heads * (packed(cache.head_dim) + packed(cache.head_dim_v) + dtype.scale_bytes_per_head)


def state_bytes(
    cache: LayerCache, tensor: int, speculative_tokens: int, model_dtype_bytes: int, state_dtype: str | None
) -> int:
    """Bytes of one state of a linear layer; ``state_dtype`` is --mamba-ssm-cache-dtype, for all but the first
    tensor.
    """
    total = 0
    for index, state in enumerate(cache.states):
        name = state.dtype
        if index and state_dtype not in (None, "auto"):
            name = str(state_dtype)
        size = model_dtype_bytes if name in ("model", "auto") else kv_dtype(name).element_bytes
        total += state.elements(tensor, speculative_tokens) * size
    return total


@dataclass(frozen=True, slots=True)
class Page:
    """What one layer takes of a block. Equal pages (``geometry`` included) are one kind of layer to vLLM."""

    kind: str
    block: int
    bytes: int
    window: int | None = None
    geometry: tuple[Any, ...] = ()

    @property
    def family(self) -> tuple[Any, ...]:
        """Pages of one family may form one group though their sizes differ (UniformTypeKVCacheSpecs)."""
        if self.kind in ("full", "mla", "indexer"):
            return ("full", self.block)
        if self.kind == "state":
            return ("state", self.block)
        return (self.kind, self.block, self.window)


@dataclass(frozen=True, slots=True)
class Rules:
    """What beside the model decides the layout. ``in_flight_tokens`` is vLLM's max_in_flight_tokens."""

    version: str
    in_flight_tokens: int
    speculative_tokens: int = 0
    extra_retained_tokens: int = 0
    state_mode: str = "none"
    state_checkpoint_blocks: int = 0

    def on(self, rule: str) -> bool:
        """Whether a rule of knowledge/kv_cache.yml is in force."""
        return holds(knowledge("kv_cache")["rules"][rule], self.version)


def page_blocks(page: Page, context: int, rules: Rules) -> int:
    """Blocks one request of ``context`` tokens takes in a group of such pages (max_memory_usage_bytes)."""
    if page.kind == "state":
        if rules.state_mode == "all":
            return _ceil(context, page.block) + rules.speculative_tokens
        if rules.state_mode == "align":
            return 2 + rules.speculative_tokens + rules.state_checkpoint_blocks
        return 1 + rules.speculative_tokens
    if page.kind == "chunked":
        return _ceil(min((page.window or 0) + rules.in_flight_tokens, context), page.block)
    if page.kind.startswith("sliding"):
        kept = (page.window or 1) - 1 + rules.extra_retained_tokens + rules.in_flight_tokens
        return _ceil(min(kept, context), page.block) + 1
    return _ceil(context, page.block)


@dataclass(frozen=True)
class Group:
    """Layers that share a block table: ``layers`` are positions in the model's list, ``pages`` their pages.

    In a ``uniform`` group all layers have the same page.
    """

    layers: tuple[int, ...]
    pages: tuple[Page, ...]

    @cached_property
    def uniform(self) -> bool:
        """Whether all layers have the same page."""
        return len(self.distinct) == 1

    @cached_property
    def distinct(self) -> tuple[Page, ...]:
        """Every kind of page once."""
        return tuple(dict.fromkeys(self.pages))

    def blocks(self, context: int, rules: Rules) -> int:
        """Blocks a request takes in this group."""
        return max(page_blocks(page, context, rules) for page in self.distinct)

    @property
    def is_state(self) -> bool:
        """Whether the group holds states, which do not grow."""
        return self.pages[0].kind == "state"


def _same_size(pages: Sequence[Page]) -> list[Page]:
    """Pages of one size: smaller ones hold more tokens, states and what does not divide are padded."""
    largest = max(page.bytes for page in pages)
    unified = []
    for page in pages:
        if page.bytes == largest:
            unified.append(page)
        elif page.kind != "state" and largest % page.bytes == 0:
            unified.append(replace(page, block=page.block * (largest // page.bytes), bytes=largest))
        else:
            unified.append(replace(page, bytes=largest))
    return unified


def _deal(pages: Sequence[Page]) -> list[Group]:
    """Layers of equal pages, dealt into groups of as many layers as the rarest kind has (or the most, if
    close).
    """
    kinds: dict[Any, list[int]] = {}
    for position, page in enumerate(pages):
        kinds.setdefault(page, []).append(position)
    sizes = [len(positions) for positions in kinds.values()]
    size = max(sizes) if max(sizes) < min(sizes) * 1.5 else min(sizes)
    groups = []
    for positions in kinds.values():
        count = _ceil(len(positions), size)
        for start in range(count):
            dealt = tuple(positions[start::count])
            groups.append(Group(dealt, tuple(pages[position] for position in dealt)))
    return groups


def _repeats(pages: Sequence[Page]) -> int:
    counts: dict[int, int] = {}
    for page in pages:
        counts[page.bytes] = counts.get(page.bytes, 0) + 1
    return max(counts.values())


def _common_repeats(counts: Sequence[int], at_least: int) -> int:
    """The number of repeats a group that wastes least when every count is rounded up to it; larger wins a
    tie.
    """
    return min(
        range(at_least, max(*counts, at_least) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
    )


def _tuple_groups(pages: Sequence[Page]) -> list[Group]:
    """DeepSeek V4 up to 0.28: latent pages in one group, windows split into groups of as many layer tuples.

    vLLM 0.26 group_and_unify_kv_cache_specs and _get_kv_cache_groups_uniform_groups.
    """
    latent = [position for position, page in enumerate(pages) if page.kind in ("mla", "indexer")]
    windows: dict[Any, list[int]] = {}
    for position, page in enumerate(pages):
        if page.kind == "sliding-mla":
            windows.setdefault((page.block, page.window), []).append(position)
    counts = [_repeats([pages[p] for p in latent])]
    counts += [_repeats([pages[p] for p in members]) for members in windows.values()]
    repeats = _common_repeats(counts, counts[0])
    sizes = sorted({pages[p].bytes for p in latent})
    groups = [Group(tuple(latent), tuple(pages[p] for p in latent))]
    for members in windows.values():
        by_size: dict[int, list[int]] = {}
        padded: dict[int, Page] = {}
        for position in members:
            own = pages[position].bytes
            size = min((size for size in sizes if size >= own), default=own)
            padded[position] = replace(pages[position], bytes=size)
            by_size.setdefault(size, []).append(position)
        tuples = list(zip(*by_size.values(), strict=False))
        count = _ceil(len(next(iter(by_size.values()))), repeats)
        for start in range(count):
            dealt = tuple(position for entry in tuples[start::count] for position in entry)
            groups.append(Group(dealt, tuple(padded[position] for position in dealt)))
    return groups


def _packed_groups(pages: Sequence[Page]) -> list[Group]:
    """Mixed page sizes packed side by side in a block, since 0.29 (_get_packed_kv_cache_groups)."""
    buckets: dict[Any, list[int]] = {}
    for position, page in enumerate(pages):
        buckets.setdefault(page.family, []).append(position)
    described = []
    for members in buckets.values():
        by_size: dict[int, list[int]] = {}
        for position in members:
            by_size.setdefault(pages[position].bytes, []).append(position)
        balanced = len({len(positions) for positions in by_size.values()}) == 1
        described.append((members, by_size, balanced))
    floor = max(
        (
            _repeats([pages[p] for p in members])
            for members, by_size, balanced in described
            if balanced and len(by_size) > 1
        ),
        default=0,
    )
    counts = [_repeats([pages[p] for p in members]) for members, _pages, balanced in described if balanced]
    repeats = _common_repeats(counts, floor) if floor else None

    def splits(members: Sequence[int], balanced: bool) -> int:
        return _ceil(_repeats([pages[p] for p in members]), repeats) if balanced and repeats else 1

    def is_state(members: Sequence[int]) -> bool:
        kind = pages[members[0]].kind
        return kind == "state" or (repeats is None and kind.startswith("sliding"))

    anchor = 0
    for members, by_size, balanced in described:
        count = len(members) if is_state(members) else splits(members, balanced)
        anchor = max(anchor, sum(_ceil(len(names), count) * size for size, names in by_size.items()))
    groups = []
    for members, by_size, balanced in described:
        count = splits(members, balanced)
        if anchor and is_state(members):
            count = max(count, _ceil(len(members), max(anchor // pages[members[0]].bytes, 1)))
        if count == 1:
            groups.append(Group(tuple(members), tuple(pages[p] for p in members)))
            continue
        tuples = list(zip(*by_size.values(), strict=False))
        for start in range(count):
            dealt = tuple(position for entry in tuples[start::count] for position in entry)
            groups.append(Group(dealt, tuple(pages[p] for p in dealt)))
    return groups


def make_groups(pages: Sequence[Page], rules: Rules, block_outermost: bool = False) -> list[Group]:
    """The groups of a whole model, in vLLM's order (get_kv_cache_groups)."""
    if not pages:
        return []
    if len({page.family for page in pages}) == 1:
        return [Group(tuple(range(len(pages))), tuple(pages))]
    if len({page.bytes for page in pages}) > 1:
        if block_outermost and rules.on("largest_group_sets_block"):
            return _packed_groups(pages)
        if any(page.kind == "sliding-mla" for page in pages):
            return _tuple_groups(pages)
    return _deal(_same_size(pages))


@dataclass(frozen=True)
class KvLayout:
    """How the caches of a model lie on its nodes.

    ``stage_of`` is the stage of each position of the groups, ``block_tokens`` the attention block. Per-node
    figures have one entry a node, stage by stage. Concurrency and tokens are what vLLM prints.
    """

    groups: tuple[Group, ...]
    stage_of: tuple[int, ...]
    stages: int
    tensor: int
    block_tokens: int
    rules: Rules
    _blocks_cache: dict[int, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    def _members(self, group: Group, stage: int) -> list[Page]:
        return [
            page for position, page in zip(group.layers, group.pages, strict=True) if self.stage_of[position] == stage
        ]

    @cached_property
    def _stage_pages(self) -> tuple[tuple[tuple[Page, ...], ...], ...]:
        return tuple(tuple(tuple(self._members(group, stage)) for group in self.groups) for stage in range(self.stages))

    @property
    def _packed(self) -> bool:
        return len(self.groups) > 1 and any(not group.uniform for group in self.groups)

    def _stage_block_bytes(self, stage: int) -> int:
        """Bytes of one block on a stage: its largest group, or before 0.29 the slots of all page sizes."""
        per_group = self._stage_pages[stage]
        if not any(per_group):
            return 0
        if self._packed and not self.rules.on("largest_group_sets_block"):
            slots: dict[int, int] = {}
            for pages in per_group:
                counts: dict[int, int] = {}
                for page in pages:
                    counts[page.bytes] = counts.get(page.bytes, 0) + 1
                for size, count in counts.items():
                    slots[size] = max(slots.get(size, 0), count)
            return sum(size * count for size, count in slots.items())
        return max(sum(page.bytes for page in pages) for pages in per_group)

    @cached_property
    def _block_bytes(self) -> tuple[int, ...]:
        return tuple(self._stage_block_bytes(stage) for stage in range(self.stages))

    @cached_property
    def bytes_per_block(self) -> tuple[int, ...]:
        """Bytes of one block on each node."""
        return tuple(size for size in self._block_bytes for _rank in range(self.tensor))

    def group_blocks(self, context: int) -> tuple[int, ...]:
        """Blocks a request of ``context`` tokens takes in each group."""
        found = self._blocks_cache.get(context)
        if found is None:
            found = tuple(group.blocks(context, self.rules) for group in self.groups)
            self._blocks_cache[context] = found
        return found

    def blocks_per_request(self, context: int) -> int:
        """Blocks a request takes of the pool, as vLLM counts them for its concurrency."""
        blocks = self.group_blocks(context)
        if self._packed and self.rules.on("blocks_weighed_by_page"):
            sizes = [sum(page.bytes for page in pages) for pages in self._stage_pages[0]]
            return _ceil(sum(count * size for count, size in zip(blocks, sizes, strict=True)), max(sizes[0], 1))
        return sum(blocks)

    def request_bytes(self, context: int) -> tuple[int, ...]:
        """Bytes one request of ``context`` tokens takes on each node: whole blocks of every group."""
        total = sum(self.group_blocks(context))
        return tuple(size * total for size in self.bytes_per_block)

    def request_state_bytes(self, context: int) -> tuple[int, ...]:
        """The part of ``request_bytes`` that is states of linear layers."""
        total = sum(
            count for group, count in zip(self.groups, self.group_blocks(context), strict=True) if group.is_state
        )
        return tuple(size * total for size in self.bytes_per_block)

    def num_blocks(self, available_bytes: Sequence[int]) -> int:
        """Blocks of the pool: the node that has fewest decides. ``available_bytes`` has one entry a node."""
        if not any(self.bytes_per_block):
            return 1
        return min(
            max(available, 0) // size
            for available, size in zip(available_bytes, self.bytes_per_block, strict=True)
            if size
        )

    def concurrency(self, available_bytes: Sequence[int], context: int) -> float:
        """Requests of ``context`` tokens that fit at once, as vLLM prints it."""
        blocks = self.blocks_per_request(context)
        return self.num_blocks(available_bytes) / blocks if blocks else float("inf")

    def kv_tokens(self, available_bytes: Sequence[int], context: int) -> int:
        """Tokens of the KV cache, as vLLM prints them."""
        if not self.groups:
            return 0
        if self.rules.on("tokens_by_groups"):
            smallest = min(page.block for group in self.groups for page in group.pages)
            return self.num_blocks(available_bytes) // len(self.groups) * smallest
        return int(self.concurrency(available_bytes, context) * context)

    def fits(self, available_bytes: Sequence[int], context: int, requests: int = 1) -> bool:
        """Whether vLLM starts with this context, or with ``requests`` has room for so many requests."""
        reserved = 1 if self.rules.on("null_block_reserved") else 0
        blocks = requests * sum(self.group_blocks(context)) + reserved
        return all(
            blocks * size <= available for available, size in zip(available_bytes, self.bytes_per_block, strict=True)
        )

    def largest_context(self, available_bytes: Sequence[int], limit: int, requests: int = 1) -> int:
        """The longest context up to ``limit`` that fits, 0 if none: vLLM's own binary search."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(available_bytes, middle, requests):
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def null_block_bytes(self) -> tuple[int, ...]:
        """Bytes of the block that vLLM never hands out, on each node."""
        return self.bytes_per_block


def hybrid_block(
    attention_row_bytes: int, state_page_bytes: int, alignment: int, chunk: int | None = None
) -> tuple[int, int]:
    """Tokens of the attention block and bytes of the padded state page of a hybrid
    (_align_hybrid_block_size).

    The block grows, in steps of ``alignment``, until an attention page is as large as a state. ``chunk`` is
    the kernels' chunk in state mode ``all``.
    """
    step = lcm(chunk, alignment) if chunk else alignment
    block = max(step * _ceil(state_page_bytes, step * attention_row_bytes), alignment)
    return block, block * attention_row_bytes


def make_pages(
    caches: Iterable[LayerCache],
    dtype: KvDtype,
    tensor: int,
    block: int,
    state_page: Callable[[LayerCache], int],
    state_page_padded: int | None,
    state_block: int,
    as_full: bool = False,
    window_block: int | None = None,
) -> list[Page]:
    """One page a cache. ``as_full`` counts windows and chunks as full attention (no hybrid cache manager);
    ``window_block`` is the block of sliding layers where it is not the attention block."""
    made: dict[tuple[Any, ...], Page] = {}
    pages = []
    for cache in caches:
        key = (
            cache.kind,
            cache.kv_heads,
            cache.head_dim,
            cache.head_dim_v,
            cache.window,
            cache.compress_ratio,
            cache.element_bytes,
            cache.block,
            cache.states,
        )
        page = made.get(key)
        if page is None:  # most layers are like another
            page = made[key] = _page(
                cache, dtype, tensor, block, state_page, state_page_padded, state_block, as_full, window_block
            )
        pages.append(page)
    return pages


def _page(
    cache: LayerCache,
    dtype: KvDtype,
    tensor: int,
    block: int,
    state_page: Callable[[LayerCache], int],
    state_page_padded: int | None,
    state_block: int,
    as_full: bool,
    window_block: int | None,
) -> Page:
    if cache.kind in STATES:
        size = state_page(cache)
        return Page("state", state_block, max(size, state_page_padded or 0), geometry=(size,))
    tokens = cache.block or block
    if window_block and cache.kind == "sliding" and not as_full:
        tokens = window_block
    row = token_bytes(cache, dtype, tensor)
    size = tokens // cache.compress_ratio * row
    if cache.block is not None:
        alignment = dtype.alignment or 512
        size = _ceil(size, alignment) * alignment
    windowed = cache.kind in ("sliding", "chunked", "sliding-mla")
    kind = "full" if as_full and windowed and cache.kind != "sliding-mla" else cache.kind
    heads = max(1, cache.kv_heads // tensor)
    geometry = (heads, cache.head_dim, cache.head_dim_v, cache.compress_ratio)
    return Page(kind, tokens, size, cache.window if kind != "full" else None, geometry)


def stage_positions(caches: Sequence[LayerCache], bounds: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The stage of each cache; drafts lie on the last."""
    last = len(bounds) - 1
    ends = [end for _first, end in bounds]
    return tuple(last if cache.draft else bisect_right(ends, cache.layer) for cache in caches)


def runs_on_v2(
    architecture: str, is_moe: bool, is_hybrid: bool, speculative_method: str | None, rules_version: str
) -> bool:
    """Whether vLLM runs the model on its model runner V2, which keeps one more batch in flight under
    pipelining.
    """
    table: Mapping[str, Any] = knowledge("kv_cache")
    if speculative_method in ("suffix", "custom_class"):
        return False
    if holds(table["rules"]["runner_v2_always"], rules_version):
        return True
    if speculative_method in ("ngram", "ngram_gpu", "draft_model", "medusa", "mlp_speculator"):
        return False
    named = table["runner_v2_architectures"]
    listed = architecture in named["names"] or holds(
        {"since": named["since"].get(architecture, "999.0.0")}, rules_version
    )
    if is_hybrid and not listed:
        return False
    return listed or not is_moe
