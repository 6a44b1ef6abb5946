# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each decoder layer is: how it mixes tokens, and whether its feed-forward part is dense or a mixture.

Config files say it in some twenty ways; each function here reads one of them. The names of the kinds are
those of transformers' ``layer_types`` and ``mlp_layer_types``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .blocks import Dimensions, Number

# Names of kinds that mean the same everywhere.
_MIXERS = {
    "attention": "full_attention",
    "full": "full_attention",
    "global": "full_attention",
    "global_attention": "full_attention",
    "G": "full_attention",
    "*": "full_attention",
    "sliding": "sliding_attention",
    "local": "sliding_attention",
    "local_attention": "sliding_attention",
    "sliding_window": "sliding_attention",
    "L": "sliding_attention",
    "M": "mamba",
    "mamba2": "mamba",
    "mamba1": "mamba",
    "m": "mamba",
    "g": "hybrid",
    "short_conv": "conv",
    "linear": "linear_attention",
    "kda": "linear_attention",
    "deepseek_sparse_attention": "full_attention",
    "full_attention_moe": "full_attention",
    "indexed_attention": "full_attention",
}
# Layers of configs whose list names the feed-forward part as a layer of its own.
_FEED_FORWARD = {"-": "dense", "mlp": "dense", "ffn": "dense", "E": "sparse", "moe": "sparse", "S": "sparse"}
_MLPS = {"moe": "sparse", "hash_moe": "sparse", "mlp": "dense", "S": "sparse", "D": "dense"}


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One decoder layer.

    ``mixer``: full_attention, sliding_attention, chunked_attention, linear_attention, mamba, hybrid (both
    in one layer), conv, cross_attention, compressed_sparse_attention, heavily_compressed_attention, rg_lru
    or none. ``mlp``: dense, sparse or none. ``numbers`` are config values that hold for this layer alone.
    """

    mixer: str
    mlp: str
    numbers: tuple[tuple[str, Number], ...] = ()


def _cycle(pattern: Sequence[str], layers: int) -> list[str]:
    return [pattern[index % len(pattern)] for index in range(layers)]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(text: Mapping[str, Any], layers: int) -> list[str] | None:
    for key in ("layer_types", "layers_block_type", "attn_types", "layer_block_types"):
        value = text.get(key)
        if isinstance(value, list) and len(value) >= layers:
            return [str(kind) for kind in value[:layers]]
    for key in ("hybrid_override_pattern", "hybrid_layer_pattern", "layers_block_pattern"):
        value = text.get(key)
        if isinstance(value, str) and len(value) >= layers:
            return list(value[:layers])
        if isinstance(value, list) and len(value) >= layers and all(item in (0, 1) for item in value):
            return ["sliding_attention" if sliding else "full_attention" for sliding in value[:layers]]
    types = text.get("block_types") or text.get("_block_types")
    if isinstance(types, list) and types:
        return _cycle([str(kind) for kind in types], layers)
    return None


def _linear_attention(text: Mapping[str, Any], layers: int) -> list[str] | None:
    settings = text.get("linear_attn_config")
    if isinstance(settings, Mapping):  # layers are counted from 1
        full = settings.get("full_attn_layers")
        full = full if isinstance(full, list) else []
        return ["full_attention" if index + 1 in full else "linear_attention" for index in range(layers)]
    kinds = text.get("attn_type_list")
    if isinstance(kinds, list) and len(kinds) >= layers:
        return ["full_attention" if kind else "linear_attention" for kind in kinds[:layers]]
    every = _whole(text.get("full_attention_interval")) or _whole(text.get("layer_group_size"))
    if every > 1:
        return [("linear_attention", "full_attention")[(index + 1) % every == 0] for index in range(layers)]
    return None


def _state_space(text: Mapping[str, Any], layers: int) -> list[str] | None:
    chosen = text.get("attn_layer_indices")
    if isinstance(chosen, list):
        return ["full_attention" if index in chosen else "mamba" for index in range(layers)]
    chosen = text.get("hybrid_layer_ids")
    if isinstance(chosen, list):
        return ["hybrid" if index in chosen else "mamba" for index in range(layers)]
    chosen = text.get("full_attn_idxs")
    if isinstance(chosen, list):
        return ["full_attention" if index in chosen else "conv" for index in range(layers)]
    period = _whole(text.get("attn_layer_period"))
    if period > 1:
        offset = _whole(text.get("attn_layer_offset"))
        return ["full_attention" if index % period == offset else "mamba" for index in range(layers)]
    return None


def _compressed(text: Mapping[str, Any], layers: int) -> list[str] | None:
    ratios = text.get("compress_ratios")
    if not isinstance(ratios, list) or len(ratios) < layers:
        return None
    return [
        "sliding_attention"
        if not ratio
        else "compressed_sparse_attention"
        if ratio <= 16
        else "heavily_compressed_attention"
        for ratio in ratios[:layers]
    ]


def _windows(text: Mapping[str, Any], layers: int) -> list[str] | None:
    pattern = text.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return _cycle([_MIXERS.get(letter, letter) for letter in pattern], layers)
    if isinstance(pattern, list) and len(pattern) >= layers:
        return ["sliding_attention" if sliding else "full_attention" for sliding in pattern[:layers]]
    if isinstance(pattern, int) and pattern > 1:
        return [("sliding_attention", "full_attention")[(index + 1) % pattern == 0] for index in range(layers)]
    if text.get("attention_chunk_size") and ("no_rope_layers" in text or "no_rope_layer_interval" in text):
        without = text.get("no_rope_layers")
        if isinstance(without, list) and len(without) >= layers:  # 0 marks a layer without rope, which sees all
            return ["chunked_attention" if rope else "full_attention" for rope in without[:layers]]
        every = _whole(text.get("no_rope_layer_interval")) or 4
        return [("chunked_attention", "full_attention")[(index + 1) % every == 0] for index in range(layers)]
    return None


_WAYS: tuple[Callable[[Mapping[str, Any], int], list[str] | None], ...] = (
    _compressed,
    _listed,
    _linear_attention,
    _state_space,
    _windows,
)


def _uniform(text: Mapping[str, Any], layers: int) -> list[str]:
    """All layers alike, but for a sliding window that holds from some layer on (Qwen2)."""
    kinds = ["full_attention"] * layers
    if text.get("sliding_window") and text.get("use_sliding_window", True):
        first = _whole(text.get("max_window_layers")) if "use_sliding_window" in text else 0
        kinds = ["sliding_attention" if index >= first else "full_attention" for index in range(layers)]
    return kinds


def mixers(text: Mapping[str, Any], layers: int, row: Mapping[str, Any]) -> list[str]:
    """The mixer of each layer; ``row`` is the family's row of models.yml."""
    kinds = next((found for way in _WAYS if (found := way(text, layers)) is not None), None)
    if kinds is None:
        pattern = row.get("pattern")
        kinds = _cycle(pattern, layers) if pattern else _uniform(text, layers)
    crossing = text.get("cross_attention_layers")
    if isinstance(crossing, list):
        kinds = ["cross_attention" if index in crossing else kind for index, kind in enumerate(kinds)]
    renamed = {**_MIXERS, **row.get("types", {})}
    return ["none" if kind in _FEED_FORWARD else str(renamed.get(kind, kind)) for kind in kinds]


def _sparse_by(text: Mapping[str, Any], dimensions: Dimensions, layers: int) -> list[bool]:
    """Which layers hold experts, by every rule the config states; all of them must agree."""
    rules: list[Callable[[int], bool]] = []
    first = dimensions.get("first_k_dense_replace")
    if first:
        rules.append(lambda index: index >= first)
    last = text.get("moe_layer_end_index")
    if isinstance(last, int) and last >= 0:
        rules.append(lambda index: index <= last)
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list) and len(frequency) >= layers:
        rules.append(lambda index: bool(frequency[index]))
    elif isinstance(frequency, int) and frequency > 1:
        rules.append(lambda index: index % frequency == 0)
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"):
        step = dimensions.get(key)
        if step and step > 1 and not isinstance(text.get("moe_layers"), list):
            rules.append(lambda index, step=step: (index + 1) % step == 0)  # type: ignore[misc]
    dense = text.get("mlp_only_layers")
    if isinstance(dense, list) and dense:
        rules.append(lambda index: index not in dense)
    chosen = text.get("moe_layers")
    if isinstance(chosen, list) and chosen:
        rules.append(lambda index: index in chosen)
    named = text.get("moe_layers_enum")
    if isinstance(named, str) and named.strip():
        enumerated = {int(part) for part in named.split(",") if part.strip().isdigit()}
        rules.append(lambda index: index in enumerated)
    period = dimensions.get("expert_layer_period")
    if period:
        offset = dimensions.get("expert_layer_offset") or 0
        rules.append(lambda index: index % period == offset)
    return [all(rule(index) for rule in rules) for index in range(layers)]


def mlps(text: Mapping[str, Any], layers: int, dimensions: Dimensions) -> list[str]:
    """The feed-forward part of each layer."""
    for key in ("layers_block_type", "hybrid_override_pattern", "layer_types"):
        value = text.get(key)
        if isinstance(value, list | str) and len(value) >= layers:
            kinds = [str(kind) for kind in value[:layers]]
            if any(kind in _FEED_FORWARD for kind in kinds):
                return [_FEED_FORWARD.get(kind, "none") for kind in kinds]
    experts = dimensions.get("num_experts") or 0
    if experts <= 1:
        return ["dense"] * layers
    value = text.get("mlp_layer_types")
    if isinstance(value, list) and len(value) >= layers:
        return [_MLPS.get(str(kind), str(kind)) for kind in value[:layers]]
    return ["sparse" if sparse else "dense" for sparse in _sparse_by(text, dimensions, layers)]


def _of_block_configs(
    text: Mapping[str, Any], heads: int, hidden: int
) -> Iterable[tuple[str | None, str | None, dict[str, Number]]]:
    """Layers of a pruned network (Nemotron-NAS), each with its own sizes.

    The width is ``2 * ffn_mult * hidden / 3`` rounded up to 256 (vLLM 0.33, models/nemotron_nas.py).
    """
    blocks = text.get("block_configs")
    for block in blocks if isinstance(blocks, list) else ():
        attention, ffn = (_mapping(_mapping(block).get(part)) for part in ("attention", "ffn"))
        numbers: dict[str, Number] = {}
        group = attention.get("n_heads_in_group")
        if isinstance(group, int) and group:
            numbers["num_key_value_heads"] = heads // group
        if isinstance(attention.get("num_key_value_heads"), int):
            numbers["num_key_value_heads"] = attention["num_key_value_heads"]
        multiplier = ffn.get("ffn_mult")
        if isinstance(multiplier, int | float):
            numbers["intermediate_size"] = -(-int(2 * multiplier * hidden / 3) // 256) * 256
        if isinstance(ffn.get("intermediate_size"), int):
            numbers["intermediate_size"] = ffn["intermediate_size"]
        gone = attention.get("no_op") or attention.get("replace_with_linear")
        if gone:
            numbers["no_mixer"] = 1
        yield "none" if gone else None, "none" if ffn.get("no_op") else None, numbers


def layer_kinds(text: Mapping[str, Any], dimensions: Dimensions, row: Mapping[str, Any]) -> tuple[LayerKind, ...]:
    """Every decoder layer of the model, in order."""
    layers = int(dimensions.get("num_hidden_layers") or 0)
    mixing: list[str] = mixers(text, layers, row)
    feeding = mlps(text, layers, dimensions)
    numbers: list[dict[str, Number]] = [{} for _layer in range(layers)]
    for name, keys in _PER_LAYER.items():  # a list of one number a layer
        value = next((text[key] for key in keys if isinstance(text.get(key), list)), None)
        if value is not None and len(value) == layers and all(map(_is_int, value)):
            for index in range(layers):
                numbers[index][name] = value[index]
    for key, value in _mapping(text.get("per_layer_config")).items():
        if str(key).isdigit() and int(key) < layers and isinstance(value, Mapping):
            numbers[int(key)].update({name: item for name, item in value.items() if _is_int(item)})
    heads, hidden = int(dimensions.get("num_attention_heads") or 0), int(dimensions.get("hidden_size") or 0)
    for index, (mixer, mlp, sizes) in enumerate(_of_block_configs(text, heads, hidden)):
        if index < layers:
            mixing[index] = mixer or mixing[index]
            feeding[index] = mlp or feeding[index]
            numbers[index].update(sizes)
    sharing = min(max(int(dimensions.get("num_kv_shared_layers") or 0), 0), layers)
    for index in range(layers - sharing, layers) if sharing else ():
        numbers[index]["kv_shared"] = 1
        if text.get("use_double_wide_mlp"):
            numbers[index]["intermediate_size"] = 2 * int(dimensions.get("intermediate_size") or 0)
    for index, shared in enumerate(_shared_indexers(text, layers)):
        if shared:
            numbers[index]["indexer_shared"] = 1
    same: dict[tuple[str, str, tuple[tuple[str, Number], ...]], LayerKind] = {}
    result = []
    for mixer, mlp, own in zip(mixing, feeding, numbers, strict=True):
        what = (mixer, mlp, tuple(sorted(own.items())) if own else ())
        kind = same.get(what)
        if kind is None:
            kind = same[what] = LayerKind(*what)
        result.append(kind)
    return tuple(result)


_PER_LAYER = {
    "intermediate_size": ("intermediate_size", "ffn_hidden_size"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "num_key_value_heads_per_layer"),
    "num_attention_heads": ("num_attention_heads", "num_query_heads", "num_attention_heads_per_layer"),
    "head_dim": ("head_dim",),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "num_experts": ("num_experts", "n_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "moe_topk"),
    "num_shared_experts": ("num_shared_experts", "num_shared_expert", "n_shared_experts"),
}


def _shared_indexers(text: Mapping[str, Any], layers: int) -> list[bool]:
    """Layers that use an earlier layer's sparse indexer (vLLM 0.33, models/deepseek_v2.py)."""
    types = text.get("indexer_types")
    if isinstance(types, list) and len(types) >= layers:
        return [kind == "shared" for kind in types[:layers]]
    every = _whole(text.get("index_topk_freq"))
    if every > 1:
        offset = _whole(text.get("index_skip_topk_offset"))
        return [max(index - offset + 1, 0) % every != 0 for index in range(layers)]
    return [False] * layers
