# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each layer remembers of a request: the kind of its attention and the geometry of its cache.

Read from the text config alone. Which page such a cache takes is the business of kv_cache.py. Formulas are
those of vLLM 0.26 to 0.33 (v1/kv_cache_interface.py, layers/mamba/mamba_utils.py); what a file leaves to the
family's code is in knowledge/attention.yml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from .checkpoint import Checkpoint
from .findings import Finding
from .knowledge import knowledge

Kind = Literal[
    "full",
    "mla",
    "indexer",
    "sliding",
    "sliding-mla",
    "chunked",
    "mamba1",
    "mamba2",
    "gdn",
    "kda",
    "linear",
    "shortconv",
]
GROWING: frozenset[str] = frozenset({"full", "mla", "indexer"})
STATES: frozenset[str] = frozenset({"mamba1", "mamba2", "gdn", "kda", "linear", "shortconv"})

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config")
_LISTS = (
    "hybrid_override_pattern",
    "layers_block_type",
    "layer_types",
    "attn_type_list",
    "sliding_window_pattern",
)

# vLLM's smallest default of max_num_batched_tokens, twice in flight: a window that reaches this far from the
# native context never drops a token (v1/kv_cache_interface.py, SlidingWindowSpec).
_SMALLEST_IN_FLIGHT_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class State:
    """One state tensor of a linear layer: ``width * rows`` elements, kept once a request.

    ``width`` is divided by tensor parallel. ``grows`` adds a row for each speculative token. ``groups``
    groups of ``group_width`` elements are part of the width and are copied where they do not divide by tensor
    parallel. ``dtype`` is ``model``, or a name such as ``float32`` when the family fixes it.
    """

    width: int
    rows: int
    grows: bool = False
    dtype: str = "model"
    groups: int = 0
    group_width: int = 0

    def elements(self, tensor: int, speculative_tokens: int) -> int:
        """Elements a rank keeps."""
        width = self.width
        if self.groups and self.groups % tensor:
            width += (tensor - self.groups) * self.group_width
        return width // tensor * (self.rows + (speculative_tokens if self.grows else 0))


@dataclass(frozen=True, slots=True)
class LayerCache:
    """The cache of one attention or linear layer, before tensor parallel and the choice of a KV dtype.

    ``layer`` is the decoder layer it belongs to; layers of multi-token prediction count on from the last and
    are ``draft``. ``head_dim`` is the latent and rope width of ``mla`` and the bytes of an ``indexer`` row;
    ``head_dim_v`` is 0 for both. ``window`` is the window of ``sliding`` or the chunk of ``chunked``, in
    tokens. ``compress_ratio`` tokens share one stored row. ``element_bytes`` and ``block`` are set where the
    model fixes them.
    """

    layer: int
    kind: Kind
    kv_heads: int = 1
    head_dim: int = 0
    head_dim_v: int = 0
    window: int | None = None
    compress_ratio: int = 1
    states: tuple[State, ...] = ()
    element_bytes: int | None = None
    block: int | None = None
    draft: bool = False

    @property
    def grows(self) -> bool:
        """Whether the cache keeps growing with the length of a request."""
        return self.kind in GROWING


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: Any, default: int) -> int:
    return int(value) if _is_int(value) else default


@lru_cache(maxsize=64)
def _family(model_type: str) -> Mapping[str, Any]:
    row: Mapping[str, Any]
    for row in knowledge("attention")["families"]:
        if model_type in row["model_types"]:
            return row
    return {}


def _text_in_file(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's config as the file has it, without what was derived from it."""
    inner = config
    while True:
        nested = next((inner[key] for key in _TEXT_KEYS if isinstance(inner.get(key), Mapping)), None)
        if not nested:
            return inner
        inner = nested


_NO_NUMBER = -(1 << 62)


class _Reader:
    """The text config of a checkpoint, with the family's defaults behind it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.text = checkpoint.text
        self.layers = checkpoint.layers
        text_type = str(self.text.get("model_type") or "")
        self.types = (text_type, checkpoint.model_type)
        self.row: Mapping[str, Any] = _family(text_type) or _family(checkpoint.model_type)
        self.defaults: Mapping[str, Any] = self.row.get("defaults") or {}
        self.native_context = checkpoint.native_context
        self.checkpoint = checkpoint
        self.file = _text_in_file(checkpoint.config)
        self._numbers: dict[tuple[str, ...], int] = {}
        # What is the same in all layers of a kind, worked out with the first of them.
        self.geometries: dict[str, tuple[int, int, int]] = {}
        self.states: dict[str, tuple[State, ...]] = {}

    def get(self, key: str | None, default: Any = None) -> Any:
        """What the file says, else what was derived from it, else the family's default."""
        if key is None:
            return default
        for source in (self.file, self.text, self.defaults):
            value = source.get(key)
            if value is not None:
                return value
        return default

    def number(self, *keys: str, default: int = 0) -> int:
        """The first of the keys that holds a number; one that holds 0 yields to the keys behind it."""
        found = self._numbers.get(keys)
        if found is None:  # asked for in every layer, the same in all of them
            numbers = [int(value) for value in map(self.get, keys) if _is_int(value)]
            found = self._numbers[keys] = next(filter(None, numbers), 0 if numbers else _NO_NUMBER)
        return default if found == _NO_NUMBER else found


def _words(value: Any) -> list[str] | None:
    if isinstance(value, str):
        return list(value)
    if isinstance(value, Sequence) and value and all(isinstance(item, str) for item in value):
        return [str(item) for item in value]
    return None


def _linear_kind(reader: _Reader) -> str:
    for marker in knowledge("attention")["linear_markers"]["rows"]:
        if reader.get(marker["key"]) is not None:
            return str(marker["kind"])
    return "linear"


def _named(words: Sequence[str], reader: _Reader) -> list[str]:
    known = knowledge("attention")["layer_words"]["words"]
    other = str(reader.row.get("other") or "")
    linear = _linear_kind(reader)
    exact = {"linear": other if other in STATES else linear, "mamba": linear}
    kinds = []
    for word in words:
        parts = str(known.get(word, "full")).split("+")
        kinds.append("+".join(exact.get(part, part) for part in parts))
    return kinds


def _tile(pattern: Sequence[str], layers: int) -> list[str]:
    return [pattern[index % len(pattern)] for index in range(layers)]


def _from_numbers(reader: _Reader) -> list[str] | None:
    """Kinds from lists of layer numbers or flags that some families carry."""
    layers = reader.layers
    linear = reader.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), Sequence):
        full = set(linear["full_attn_layers"])  # counted from 1
        return ["full" if index + 1 in full else "kda" for index in range(layers)]
    flags = reader.get("hybrid_layer_pattern")
    if isinstance(flags, Sequence) and not isinstance(flags, str) and len(flags) >= layers:
        return ["sliding" if flag else "full" for flag in flags[:layers]]
    flags = reader.get("attn_type_list")
    if isinstance(flags, Sequence) and len(flags) >= layers and all(_is_int(flag) for flag in flags):
        return ["full" if flag else _linear_kind(reader) for flag in flags[:layers]]
    flags = reader.get("no_rope_layers")
    if isinstance(flags, Sequence) and len(flags) >= layers and reader.row.get("other") == "chunked":
        return ["chunked" if flag else "full" for flag in flags[:layers]]
    return None


def _kinds(reader: _Reader) -> list[str]:
    """One word a layer: a kind, two joined by ``+``, or ``none``."""
    layers, row = reader.layers, reader.row
    blocks = reader.get("block_configs")
    if isinstance(blocks, Sequence) and len(blocks) >= layers and "block_type" not in (blocks[0] or {}):
        return ["none" if _no_attention(block) else "full" for block in blocks[:layers]]
    for key in _LISTS:
        words = _words(reader.file.get(key))
        if words:
            if key == "sliding_window_pattern":
                words = _tile(words, layers)
            if len(words) >= layers:
                return _named(words[:layers], reader)
    numbered = _from_numbers(reader)
    if numbered:
        return numbered
    indices = reader.get(row.get("indices_key"))
    if isinstance(indices, Sequence):
        rest, at = (row.get("pattern") or ["full"])[0], row["at_indices"]
        return [at if index in set(indices) else rest for index in range(layers)]
    if "period" in row:
        period = reader.number(row.get("period_key", ""), default=row["period"]) or 1
        offset = reader.number(row.get("offset_key", ""), default=row.get("offset", period - 1))
        return ["full" if index % period == offset else row["other"] for index in range(layers)]
    if "pattern" in row:
        return _tile(row["pattern"], layers)
    first = _first_sliding_layer(reader)
    derived = _words(reader.text.get("layer_types"))
    if derived and len(derived) >= layers and len(set(derived)) > 1:
        return _named(derived[:layers], reader)
    return ["sliding" if index >= first else "full" for index in range(layers)]


def _first_sliding_layer(reader: _Reader) -> int:
    """Where a window without a list of layers begins: at the first layer, or nowhere (the number of layers).

    vLLM gives such a window to every layer (engine/arg_utils.py, 0.26); Qwen's families need a second key.
    """
    window = reader.file.get("sliding_window", reader.row.get("window_if_unsaid"))
    needs = reader.row.get("window_needs")
    on = reader.file.get(needs, False) if needs else reader.file.get("use_sliding_window", True)
    if not _is_int(window) or not window or not on:
        return reader.layers
    return _whole(reader.file.get("max_window_layers"), 0) if needs else 0


def _unknown_words(reader: _Reader) -> list[str]:
    """Words for layers in the file that knowledge/attention.yml does not have."""
    known = knowledge("attention")["layer_words"]["words"]
    words = (word for key in _LISTS for word in _words(reader.file.get(key)) or ())
    if _compress_ratios(reader) is not None:
        return []
    return sorted({word for word in words if word not in known})


def _no_attention(block: Any) -> bool:
    attention = (block or {}).get("attention") or {}
    return bool(attention.get("no_op") or attention.get("replace_with_linear"))


def _latent(reader: _Reader) -> bool:
    if reader.get("kv_lora_rank") is None or reader.get("use_mla") is False:
        return False
    return any(name in knowledge("attention")["latent"]["model_types"] for name in reader.types)


def _of_layer(reader: _Reader, layer: int) -> Mapping[str, Any]:
    """What transformers' ``per_layer_config`` changes for one layer; its keys may have zeros ahead."""
    layers = reader.file.get("per_layer_config")
    if not isinstance(layers, Mapping):
        return {}
    own = next((value for key, value in layers.items() if str(key).lstrip("0") == str(layer).lstrip("0")), None)
    return own if isinstance(own, Mapping) else {}


def _geometry(reader: _Reader, kind: str) -> tuple[int, int, int]:
    """KV heads, width of a key and of a value, before tensor parallel."""
    row = reader.row
    heads = reader.number("num_attention_heads", default=1)
    nested = reader.get(row.get("geometry_in"))
    own: Mapping[str, Any] = nested if isinstance(nested, Mapping) else {}
    keys: Mapping[str, str] = row.get("geometry") or {}
    kv_heads = _whole(own.get(keys.get("kv_heads", "")), 0)
    kv_heads = kv_heads or reader.number("num_key_value_heads", default=heads)
    if row.get("heads_key"):
        kv_heads = heads
    if reader.get(row.get("single_kv_head_key")) and not reader.get(row.get("unless_key")):
        kv_heads = 1
    head_dim = reader.number(row.get("head_dim_key", "head_dim"), "head_dim", "hidden_size_per_head", "kv_channels")
    if row.get("head_dim_sum"):
        head_dim = sum(reader.number(key) for key in row["head_dim_sum"])
    head_dim = head_dim or reader.checkpoint.hidden_size // max(heads, 1)
    head_dim_v = reader.number("v_head_dim", default=head_dim) if row.get("own_v_head_dim") else head_dim
    special: Mapping[str, str] = row.get(f"{kind}_geometry") or {}
    nested_key = row.get(f"{kind}_geometry_in")
    source: Any = reader.get(nested_key) if nested_key else reader
    if special and isinstance(source, Mapping | _Reader):
        gate = special.get("kv_heads_if")
        if gate is None or reader.get(gate):
            kv_heads = _whole(source.get(special["kv_heads"]), kv_heads)
        width = _whole(source.get(special["head_dim"]), 0)
        if width:
            head_dim, head_dim_v = width, width
        head_dim_v = _whole(source.get(special.get("head_dim_v", "")), head_dim_v)
    return kv_heads, head_dim, head_dim_v


def _layer_geometry(reader: _Reader, kind: str, layer: int) -> tuple[int, int, int]:
    """The geometry of one layer: its kind's, with what the file says of this layer alone."""
    common = reader.geometries.get(kind)
    if common is None:
        common = reader.geometries[kind] = _geometry(reader, kind)
    kv_heads, head_dim, head_dim_v = common
    blocks = reader.get("block_configs")
    if isinstance(blocks, Sequence) and layer < len(blocks) and isinstance(blocks[layer], Mapping):
        grouped = (blocks[layer].get("attention") or {}).get("n_heads_in_group")
        if grouped:
            kv_heads = reader.number("num_attention_heads", default=1) // int(grouped)
    single = _of_layer(reader, layer)
    if single:
        kv_heads = _whole(single.get("num_key_value_heads"), kv_heads)
        head_dim = _whole(single.get("head_dim"), head_dim)
        head_dim_v = head_dim
    return max(kv_heads, 1), head_dim, head_dim_v


def _states(reader: _Reader, kind: str) -> tuple[State, ...]:
    row = reader.row
    dtype = str(reader.get(row.get("state_dtype_key")) or row.get("state_dtype") or "model")
    if kind == "gdn":
        keys = reader.number("linear_num_key_heads", default=16) * reader.number("linear_key_head_dim", default=128)
        value_heads = reader.number("linear_num_value_heads", default=32)
        value_dim = reader.number("linear_value_head_dim", default=128)
        values = value_heads * value_dim
        return (
            State(2 * keys + values, reader.number("linear_conv_kernel_dim", default=4) - 1, grows=True),
            State(values, reader.number("linear_key_head_dim", default=128), dtype=dtype),
        )
    if kind == "kda":
        config = reader.get("linear_attn_config") or {}
        heads, dim = int(config.get("num_heads") or 1), int(config.get("head_dim") or 128)
        kernel = int(config.get("short_conv_kernel_size") or 4)
        return (State(3 * heads * dim, kernel - 1, grows=True), State(heads * dim, dim, dtype="float32"))
    if kind == "mamba2":
        heads = reader.number("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads", default=1)
        dim = reader.number("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim", default=64)
        groups = reader.number("mamba_n_groups", "mamba_ngroups", "n_groups", default=1)
        size = reader.number("ssm_state_size", "mamba_d_state", "state_size", default=128)
        kernel = reader.number("conv_kernel", "mamba_d_conv", default=4)
        return (
            State(heads * dim + 2 * groups * size, kernel - 1, True, groups=groups, group_width=2 * size),
            State(heads * dim, size, dtype=dtype),
        )
    if kind == "mamba1":
        inner = reader.number(row.get("state_width_key", ""))
        inner = inner or reader.number("mamba_expand", default=2) * reader.checkpoint.hidden_size
        kernel = reader.number("mamba_d_conv", "conv_kernel", default=4)
        return (
            State(inner, kernel - 1),
            State(inner, reader.number("mamba_d_state", "state_size", default=16), dtype=dtype),
        )
    if kind == "shortconv":
        width = reader.number("conv_dim", default=reader.checkpoint.hidden_size)
        return (State(width, reader.number("conv_L_cache", default=3) - 1, grows=True),)
    heads = reader.number("num_attention_heads", default=1)
    dim = reader.number("head_dim", default=reader.checkpoint.hidden_size // heads)
    return (State(heads * dim, dim, dtype=dtype),)


def _has_indexer(reader: _Reader, layer: int) -> bool:
    """Whether a sparse layer keeps an index of its own or reads that of a layer before it.

    vLLM 0.26 deepseek_v2.py: every ``index_topk_freq``-th layer, or an ``F`` in ``index_topk_pattern``;
    layers of multi-token prediction always do.
    """
    if reader.get("index_topk") is None:
        return False
    pattern = reader.get("index_topk_pattern")
    if layer >= reader.layers:
        return True
    if isinstance(pattern, str | list):
        return layer >= len(pattern) or pattern[layer] != "S"
    offset = reader.number("index_skip_topk_offset", default=2)
    return max(layer - offset + 1, 0) % max(reader.number("index_topk_freq", default=1), 1) == 0


def _compress_ratios(reader: _Reader) -> Sequence[int] | None:
    """Tokens a stored row of each layer stands for, 0 for a window alone; None where rows are not compressed.

    DeepSeek V4. Newer files name the kinds of layers and give each a rate (vLLM 0.33
    transformers_utils/deepseek_v4_utils.py).
    """
    ratios = reader.get("compress_ratios")
    if isinstance(ratios, Sequence):
        return ratios
    rates, words = reader.get("compress_rates"), _words(reader.file.get("layer_types"))
    if isinstance(rates, Mapping) and words:
        return [int(rates.get(word) or 0) for word in words]
    return None


def _compressed(reader: _Reader, layer: int, ratio: int, draft: bool) -> list[LayerCache]:
    """DeepSeek V4: a window over raw rows, and where the layer compresses, the rows and their unfinished
    state.

    vLLM 0.26 models/deepseek_v4/{attention,compressor}.py, v1/attention/backends/mla/sparse_swa.py: blocks of
    64 tokens for the window, of 256 for compressed rows, of 4 or 8 for the float32 state of the compressor.
    """
    head_dim = reader.number("head_dim", default=512)
    index_dim = reader.number("index_head_dim", default=128)
    window = reader.number("sliding_window", default=128)
    caches = [LayerCache(layer, "sliding-mla", 1, head_dim, window=window, block=64, draft=draft)]
    if ratio <= 1:
        return caches
    overlap = 2 if ratio == 4 else 1
    state = LayerCache(
        layer,
        "sliding-mla",
        window=overlap * ratio,
        element_bytes=4,
        block=4 if ratio == 4 else 8,
        draft=draft,
    )
    caches.append(LayerCache(layer, "mla", 1, head_dim, compress_ratio=ratio, block=256, draft=draft))
    if ratio == 4:
        row = index_dim + index_dim // 128 * 4
        caches.append(
            LayerCache(layer, "indexer", 1, row, compress_ratio=ratio, element_bytes=1, block=256, draft=draft)
        )
        caches.append(replace(state, head_dim=2 * overlap * index_dim))
    caches.append(replace(state, head_dim=2 * overlap * head_dim))
    return caches


def _layer(reader: _Reader, layer: int, kind: str, draft: bool = False) -> list[LayerCache]:
    if kind == "none":
        return []
    if "+" in kind:
        return [cache for part in kind.split("+") for cache in _layer(reader, layer, part, draft)]
    if kind in STATES:
        states = reader.states.get(kind)
        if states is None:
            states = reader.states[kind] = _states(reader, kind)
        return [LayerCache(layer, kind, states=states, draft=draft)]  # type: ignore[arg-type]
    if kind == "full" and _latent(reader):
        width = reader.number("kv_lora_rank") + reader.number("qk_rope_head_dim")
        caches = [LayerCache(layer, "mla", 1, width, draft=draft)]
        if _has_indexer(reader, layer):
            index_dim = reader.number("index_head_dim", default=128)
            row = index_dim + index_dim // 128 * 4  # fp8 values and one float32 scale per 128
            caches.append(LayerCache(layer, "indexer", 1, row, element_bytes=1, draft=draft))
        return caches
    window = None
    if kind == "sliding":
        window = reader.number("sliding_window", "sliding_window_size") or None
    elif kind == "chunked":
        window = reader.number("attention_chunk_size") or None
    if window is None:
        kind = "full"
    kv_heads, head_dim, head_dim_v = _layer_geometry(reader, kind, layer)
    return [LayerCache(layer, kind, kv_heads, head_dim, head_dim_v, window, draft=draft)]  # type: ignore[arg-type]


class _ByIdentity:
    """A checkpoint as a key: the same object, not an equal one."""

    __slots__ = ("value",)

    def __init__(self, value: Checkpoint) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value


def layer_caches(checkpoint: Checkpoint) -> tuple[LayerCache, ...]:
    """Every cache of the model in layer order; those of multi-token prediction come last and are ``draft``.

    Layers that keep nothing of their own (experts, shared KV, cross-attention) have no entry; a sparse layer
    with an index, a hybrid-head layer and DeepSeek V4's layers have several. Remembered for the same object.
    """
    return _remembered(_ByIdentity(checkpoint))


@lru_cache(maxsize=8)
def _remembered(key: _ByIdentity) -> tuple[LayerCache, ...]:
    return _worked_out(key.value)


def _worked_out(checkpoint: Checkpoint) -> tuple[LayerCache, ...]:
    reader = _Reader(checkpoint)
    layers, row = checkpoint.layers, reader.row
    ratios = _compress_ratios(reader)
    mtp_layers = checkpoint.mtp_layers
    caches: list[LayerCache] = []
    if ratios is not None and len(ratios) >= layers:
        for index in range(layers + mtp_layers):
            ratio = int(ratios[index]) if index < len(ratios) else 0
            caches += _compressed(reader, index, ratio, draft=index >= layers)
        return tuple(caches)
    kinds = _kinds(reader)
    if row.get("last"):
        kinds[-1] = str(row["last"])
    shared = reader.number(row.get("shared_key", ""))
    for index, kind in enumerate(kinds[: layers - shared]):
        for _more in range(int(row.get("attentions_per_layer", 1))):
            caches += _layer(reader, index, kind)
    mtp_kind = str(row.get("mtp") or "full")
    for index in range(layers, layers + mtp_layers):
        caches += _layer(reader, index, mtp_kind, draft=True)
    return tuple(caches)


def growing_caches(checkpoint: Checkpoint, caches: Sequence[LayerCache] | None = None) -> tuple[LayerCache, ...]:
    """The caches that keep growing with a request, drafts left out.

    Where every layer slides and the window covers the native context, no token is ever dropped: those grow
    too.
    """
    everything = [cache for cache in (layer_caches(checkpoint) if caches is None else caches) if not cache.draft]
    windows = {cache.window for cache in everything}
    native_context = checkpoint.native_context
    if native_context and len(windows) == 1 and all(cache.kind == "sliding" for cache in everything):
        (window,) = windows
        if window is not None and window - 1 + _SMALLEST_IN_FLIGHT_TOKENS >= native_context:
            return tuple(everything)
    return tuple(cache for cache in everything if cache.grows)


def attention_kinds(checkpoint: Checkpoint) -> list[str]:
    """The kinds of attention in the model, most frequent first: ``gqa``, ``mla``, ``sliding``, ``gdn`` ...

    Full attention is told by its heads: ``mha``, ``gqa`` or ``mqa``.
    """
    heads = checkpoint.text.get("num_attention_heads")
    counts: dict[str, int] = {}
    for cache in layer_caches(checkpoint):
        if cache.draft:
            continue
        kind = str(cache.kind)
        if kind == "full":
            kind = "mqa" if cache.kv_heads == 1 and heads != 1 else "mha" if cache.kv_heads == heads else "gqa"
        counts[kind] = counts.get(kind, 0) + 1
    return sorted(counts, key=lambda kind: -counts[kind])


def attention_findings(checkpoint: Checkpoint) -> tuple[Finding, ...]:
    """What is not known about the caches of this checkpoint."""
    table = knowledge("attention")["not_modelled"]
    reader = _Reader(checkpoint)
    name = next((name for name in reader.types if name in table["model_types"]), None)
    if name is not None:
        return (
            Finding(
                "warning",
                "kv-cache-not-modelled",
                f"The cache of {name} is estimated as plain attention, not worked out page by page.",
                f"vLLM gives this family {table['model_types'][name]}.",
                "Trust the 'Maximum concurrency' line of the first start, or set vllm_kv_cache_memory_bytes.",
                table["source"],
            ),
        )
    strange = _unknown_words(reader)
    if strange:
        return (
            Finding(
                "warning",
                "layer-kind-unknown",
                f"The config names layers that are not known: {', '.join(strange)}.",
                "They are counted as full attention, which is the most a layer keeps.",
                "Compare the 'KV cache size' line of the first start.",
                knowledge("attention")["layer_words"]["source"],
            ),
        )
    if reader.get("kv_lora_rank") is not None and reader.get("use_mla") is not False and not _latent(reader):
        if reader.row.get("head_dim_sum"):
            return ()
        return (
            Finding(
                "warning",
                "latent-attention-unsure",
                "The config has kv_lora_rank, but vLLM is not known to run "
                f"{reader.types[0] or 'this model type'} with latent attention.",
                "The cache is counted as plain heads, which is the larger of the two.",
                "Compare the 'KV cache size' line of the first start.",
                knowledge("attention")["latent"]["source"],
            ),
        )
    return ()
