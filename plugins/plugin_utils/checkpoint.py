# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A checkpoint as the planner sees it, read from config.json and what lies beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .blocks import Dimensions, model_row, number_keys, unknown_row
from .findings import Finding
from .knowledge import knowledge
from .layers import LayerKind, layer_kinds
from .quantization import Quantization, read_quantization, with_family


class InputError(ValueError):
    """Bad input: ``field`` names what is wrong, the message what was expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Checkpoint:
    """Facts of one checkpoint.

    ``config`` is config.json; ``text`` is the language model's part of it with today's names
    (``num_hidden_layers``, ``num_attention_heads``, ``num_key_value_heads``, ``head_dim``,
    ``intermediate_size``, ``num_experts``, ``num_experts_per_tok``, ``moe_intermediate_size``,
    ``mamba_d_state`` ...), the family's defaults filled in where the file leaves a key out, the file's own
    keys kept beside them. ``kinds`` has one entry a decoder layer; ``dimensions(layer)`` are the numbers
    that hold in one. ``dtype_bytes`` belongs to the dtype the model runs in: 2 for a float32 checkpoint;
    ``stored_bytes`` to the one in the file. ``row`` is the family's row of models.yml, ``known`` whether
    there is one.
    """

    id: str
    architecture: str
    model_type: str
    family: str
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    layers: int
    hidden_size: int
    vocab_size: int
    dtype: str
    dtype_bytes: int
    quantization: Quantization
    native_context: int | None
    rope_scaling: Mapping[str, Any] | None
    tied_embeddings: bool
    mtp_layers: int
    multimodal: bool
    remote_code: bool
    sparsity: str
    files: tuple[str, ...] = ()
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    tensors: Mapping[str, int] = field(default_factory=dict)
    weight_bytes: int | None = None
    unknowns: tuple[Finding, ...] = ()
    kinds: tuple[LayerKind, ...] = ()
    stored_bytes: int = 2
    row: Mapping[str, Any] = field(default_factory=dict)
    known: bool = True
    numbers: Dimensions = field(default_factory=lambda: Dimensions({}), compare=False, repr=False)

    def dimensions(self, layer: int | None = None) -> Dimensions:
        """The numbers of the text model, or those of one decoder layer (other heads, other widths)."""
        if layer is None:
            return self.numbers
        kind = self.kinds[layer]
        rules = self.row.get("kinds", {}).get(kind.mixer, {})
        return self.numbers.with_numbers(dict(kind.numbers), rules) if kind.numbers or rules else self.numbers


_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config")
_TOWER_KEYS = (
    "vision_config",
    "audio_config",
    "vit_config",
    "visual",
    "vision_tower_config",
    "mm_vision_tower",
    "vision_encoder",
)
# Sizes without which nothing can be said; defaults never stand in for them in a config of its own.
_ESSENTIAL = ("num_hidden_layers", "hidden_size", "vocab_size")
_SIZES = frozenset((*_ESSENTIAL, "num_attention_heads", "intermediate_size", "max_position_embeddings"))
# Numbers written back into ``text`` under their present names.
_DERIVED = ("num_key_value_heads", "head_dim", "moe_intermediate_size")
_FLOAT_BYTES = {
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float": 4,
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
}
_SOURCE = "config.json"


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(field, f"expected a mapping, got {type(value).__name__}")
    return value


def _text_of(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The language model's config, and whether it lies inside another one."""
    inner: Mapping[str, Any] = config
    nested = False
    for _level in range(3):  # omni models: thinker_config.text_config
        found = next((inner[key] for key in _TEXT_KEYS if isinstance(inner.get(key), Mapping) and inner[key]), None)
        if found is None:
            break
        inner, nested = found, True
    return inner, nested


def _flattened(text: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that some families keep in groups (DBRX, MPT, Step, Kimi-Linear), brought to the top."""
    flat = dict(text)
    for group in ("attn_config", "ffn_config"):
        if isinstance(text.get(group), Mapping):
            for key, value in text[group].items():
                flat.setdefault(key, value)
    ssm = text.get("ssm_cfg") or text.get("mamba_config")
    if isinstance(ssm, Mapping):
        for key, value in ssm.items():
            flat.setdefault(key, value)
    other = text.get("attention_other_setting")
    if isinstance(other, Mapping):
        flat.setdefault("sliding_num_attention_heads", other.get("num_attention_heads"))
        flat.setdefault("sliding_num_key_value_heads", other.get("num_attention_groups"))
    sparse = text.get("sparse_attention_config")
    if isinstance(sparse, Mapping):
        flat.setdefault("index_n_heads", sparse.get("sparse_num_index_heads"))
        flat.setdefault("index_head_dim", sparse.get("sparse_index_dim"))
        frequency = sparse.get("sparse_attention_freq")
        if isinstance(frequency, list) and "layer_types" not in text:
            flat["layer_types"] = ["minimax_m3_sparse" if on else "full_attention" for on in frequency]
    kda = text.get("linear_attn_config")
    if isinstance(kda, Mapping):
        flat.setdefault("kda_heads", kda.get("num_heads"))
        flat.setdefault("kda_head_dim", kda.get("head_dim"))
        flat.setdefault("kda_kernel", kda.get("short_conv_kernel_size"))
        flat.setdefault("kda_full_gate", kda.get("use_full_rank_gate"))
    if text.get("block_auto_adjust_ff_dim"):
        flat["intermediate_size"] = _adjusted_width(text)
    ratios = text.get("compress_ratios")
    if isinstance(ratios, list) and isinstance(text.get("num_hidden_layers"), int):
        flat["stored_mtp_layers"] = max(len(ratios) - text["num_hidden_layers"], 0)
    if "kda_heads" not in flat and "linear_num_heads" in flat:
        flat["kda_heads"], flat["kda_head_dim"] = flat["linear_num_heads"], flat.get("linear_head_dim")
        flat["kda_kernel"] = flat.get("linear_conv_kernel_dim")
    for key in _TEXT_AND_VISION:
        value = text.get(key)
        if isinstance(value, list) and len(value) == 2:
            flat[key] = value[0]
    return flat


# Ernie's vision models write one number for text tokens and one for image tokens.
_TEXT_AND_VISION = (
    "moe_num_experts",
    "moe_intermediate_size",
    "moe_layer_start_index",
    "moe_layer_end_index",
)


def _adjusted_width(text: Mapping[str, Any]) -> int | None:
    """LFM2 gives a width to be cut to two thirds and rounded up (transformers 5.17, models/lfm2)."""
    width = text.get("block_ff_dim") or text.get("intermediate_size")
    if not isinstance(width, int):
        return None
    width = int(2 * width / 3)
    multiplier, step = text.get("block_ffn_dim_multiplier"), text.get("block_multiple_of") or 256
    if isinstance(multiplier, int | float):
        width = int(multiplier * width)
    return -(-width // step) * step if isinstance(step, int) and step > 0 else width


def _positive(name: str, value: Any) -> int:
    if value is None:
        raise InputError(f"model.config.{name}", "expected a whole number above 0, the key is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise InputError(f"model.config.{name}", f"expected a whole number above 0, got {value!r}")
    return value


def _is_size(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer() and value >= 0
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_numbers(text: Mapping[str, Any]) -> None:
    """Keys that are there must be what they should be: a text or a negative size is no size."""
    for name in (
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "max_position_embeddings",
        *_ESSENTIAL,
    ):
        value = text.get(name)
        if value is None or isinstance(value, list):
            continue
        if not _is_size(value):
            raise InputError(f"model.config.{name}", f"expected a whole number, got {value!r}")


def _check_parts(
    text: Mapping[str, Any], dimensions: Dimensions, kinds: Sequence[LayerKind], row: Mapping[str, Any]
) -> None:
    """Keys that the layers need, and numbers that contradict each other."""
    for key in number_keys():
        value = text.get(key)
        if isinstance(value, str) and value != "auto":
            raise InputError(f"model.config.{key}", f"expected a number, got {value!r}")
    for key in _NEVER_NEGATIVE:
        value = dimensions.get(key)
        if value is not None and value < 0:
            raise InputError(f"model.config.{key}", f"expected a number not below 0, got {value!r}")
    attends = any(kind.mixer in _ATTENTION and "num_attention_heads" not in dict(kind.numbers) for kind in kinds)
    if attends and dimensions.get("num_attention_heads") is None:
        raise InputError("model.config.num_attention_heads", "expected a whole number above 0, the key is missing")
    blocks = row["mlps"].get("dense") or ()
    if (
        any(block.endswith((":gated", ":plain")) for block in blocks)
        and any(kind.mlp == "dense" and "intermediate_size" not in dict(kind.numbers) for kind in kinds)
        and dimensions.get("intermediate_size") is None
    ):
        raise InputError("model.config.intermediate_size", "expected a whole number above 0, the key is missing")
    further = dimensions.get("num_nextn_predict_layers") or 0
    if further > _MOST_PREDICTION_LAYERS:
        raise InputError(
            "model.config.num_nextn_predict_layers",
            f"expected at most {_MOST_PREDICTION_LAYERS} layers that predict further tokens, got {further}",
        )
    experts, chosen = dimensions.get("num_experts") or 0, dimensions.get("num_experts_per_tok") or 0
    if experts > 1 and chosen > experts:
        raise InputError("model.config.num_experts_per_tok", f"expected at most the {experts} experts, got {chosen}")


_MOST_PREDICTION_LAYERS = 64
_NEVER_NEGATIVE = (
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "num_key_value_heads",
    "head_dim",
)
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "cross_attention", "hybrid")


def _dtype_of(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for source in (text, config):
        for key in ("dtype", "torch_dtype"):
            value = source.get(key)
            if isinstance(value, str) and value:
                return value.removeprefix("torch.")
    return "bfloat16"


def _has_towers(config: Mapping[str, Any]) -> bool:
    places = (config, *(config[key] for key in _TEXT_KEYS if isinstance(config.get(key), Mapping)))
    return any(isinstance(place.get(key), Mapping | str) for place in places for key in _TOWER_KEYS)


def _flag(name: str, *sources: Mapping[str, Any]) -> bool | None:
    for source in sources:
        value = source.get(name)
        if isinstance(value, bool | int):
            return bool(value)
    return None


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if isinstance(names, str):
        return names
    if isinstance(names, Sequence) and names and isinstance(names[0], str):
        return names[0]
    return ""


def _native_context(text: Mapping[str, Any], config: Mapping[str, Any], dimensions: Dimensions) -> int | None:
    value = dimensions.get("max_position_embeddings") or config.get("max_position_embeddings")
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _rope(text: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for key in ("rope_scaling", "rope_parameters"):
        value = text.get(key)
        if isinstance(value, Mapping) and value:
            return value
    return None


def _unknowns(
    architecture: str,
    model_type: str,
    known: bool,
    kinds: Sequence[LayerKind],
    row: Mapping[str, Any],
    quantization: Quantization,
) -> list[Finding]:
    found: list[Finding] = []
    if not known:
        found.append(
            Finding(
                "warning",
                "architecture-unknown",
                f"{architecture or model_type or 'this model'} is not among the known architectures.",
                "It is counted as if built like Llama, with the parts its config has numbers for.",
                "Give model.weight_bytes (the sum of the safetensors) so that memory follows the files.",
                _SOURCE,
            )
        )
    strange = sorted({kind.mixer for kind in kinds} - _KNOWN_MIXERS)
    if strange:
        found.append(
            Finding(
                "warning",
                "layer-kind-unknown",
                f"The config names layers of a kind that is not known: {', '.join(strange)}.",
                "They are counted as full attention, which may be too much or too little.",
                "Give model.weight_bytes, and set the context by hand.",
                _SOURCE,
            )
        )
    if not quantization.known:
        found.append(
            Finding(
                "warning",
                "quantization-unknown",
                f"The quantization {quantization.method or quantization.algo} is not known.",
                "Bits per weight are a guess from the words in the file.",
                "Give model.weight_bytes (the sum of the safetensors).",
                "quantization_config",
            )
        )
    return found


_KNOWN_MIXERS = {
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "mamba",
    "hybrid",
    "conv",
    "cross_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "block_sparse_attention",
    "rg_lru",
    "none",
}


def read_checkpoint(model: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint that ``model`` describes (``id``, ``config``, optional sizes and texts).

    InputError names the field that is missing or wrong. What the config says but is not understood becomes a
    finding in ``unknowns`` instead.
    """
    if not isinstance(model, Mapping):
        raise InputError("model", f"expected a mapping with id and config, got {type(model).__name__}")
    config = model.get("config")
    if not isinstance(config, Mapping):
        raise InputError(
            "model.config", f"expected the content of config.json as a mapping, got {type(config).__name__}"
        )
    if not config:
        raise InputError("model.config", "expected the content of config.json, got an empty mapping")
    inner, nested = _text_of(config)
    raw = _flattened(inner)
    _check_numbers(raw)
    architecture = _architecture(config)
    outer_type, text_type = str(config.get("model_type") or ""), str(inner.get("model_type") or "")
    inner_architecture = _architecture(inner) if nested else ""
    found = model_row(text_type, outer_type, inner_architecture, architecture)
    name, row = found or ("unknown", unknown_row())
    all_defaults = knowledge("config_defaults")
    defaults = all_defaults.get(text_type) or all_defaults.get(name) or {} if found else {}
    if not nested:
        made_up = _SIZES.difference(row.get("omits", ()))
        defaults = {key: value for key, value in defaults.items() if key not in made_up}
    dimensions = Dimensions(raw, row.get("set"), defaults)
    listed = raw.get("layers_block_type") or raw.get("layer_types") or raw.get("hybrid_override_pattern")
    if dimensions.get("num_hidden_layers") is None and isinstance(listed, list | str) and listed:
        raw["num_hidden_layers"] = len(listed)
        dimensions = Dimensions(raw, row.get("set"), defaults)
    layers, hidden_size, vocab_size = (
        _positive(key, _integer(dimensions.get(key), raw.get(key))) for key in _ESSENTIAL
    )
    if layers > 10_000:
        raise InputError("model.config.num_hidden_layers", f"expected at most 10000, got {layers}")
    kinds = layer_kinds(raw, dimensions, row)
    _check_parts(raw, dimensions, kinds, row)
    hybrids = sum(kind.mixer == "hybrid" for kind in kinds)
    if hybrids:
        dimensions = dimensions.with_numbers({"num_hybrid_layers": hybrids}, {})
    text = dict(raw)
    for key in (*knowledge("blocks")["aliases"], *_DERIVED):
        value = dimensions.get(key)
        if value is not None and not isinstance(raw.get(key), list):
            text[key] = value
    text["layer_types"] = [kind.mixer for kind in kinds]
    text["mlp_layer_types"] = [kind.mlp for kind in kinds]
    quantization = read_quantization(
        _mapping(
            config.get("quantization_config") or inner.get("quantization_config") or config.get("compression_config"),
            "model.config.quantization_config",
        ),
        _mapping(model.get("quant_config"), "model.quant_config"),
    )
    quantization = with_family(quantization, row, raw)
    dtype = _dtype_of(config, raw)
    stored = _FLOAT_BYTES.get(dtype, 2)
    tied = _flag("tie_word_embeddings", raw, {"tie_word_embeddings": raw.get("tie_embedding")}, config, defaults)
    experts = int(dimensions.get("num_experts") or 0)
    weight_bytes = model.get("weight_bytes")
    if weight_bytes is not None and (
        isinstance(weight_bytes, bool) or not isinstance(weight_bytes, int | float) or weight_bytes <= 0
    ):
        raise InputError("model.weight_bytes", f"expected a number of bytes above 0, got {weight_bytes!r}")
    sizes = _mapping(model.get("tensors"), "model.tensors")
    template = model.get("chat_template")
    unknowns = _unknowns(architecture, text_type or outer_type, found is not None, kinds, row, quantization)
    return Checkpoint(
        id=str(model.get("id") or ""),
        architecture=architecture,
        model_type=outer_type or text_type,
        family=str(row["family"]) if found else (text_type or outer_type or "unknown"),
        config=config,
        text=text,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        dtype=dtype,
        dtype_bytes=min(stored, 2),
        quantization=quantization,
        native_context=_native_context(raw, config, dimensions),
        rope_scaling=_rope(raw),
        tied_embeddings=bool(tied),
        mtp_layers=max(int(dimensions.get("num_nextn_predict_layers") or 0), 0),
        multimodal=_has_towers(config),
        remote_code=bool(config.get("auto_map")),
        sparsity="moe" if experts > 1 and any(kind.mlp == "sparse" for kind in kinds) else "dense",
        files=tuple(str(file) for file in model.get("files") or ()),
        tokenizer_config=_mapping(model.get("tokenizer_config"), "model.tokenizer_config"),
        chat_template=template if isinstance(template, str) else None,
        tensors=sizes,
        weight_bytes=int(weight_bytes) if weight_bytes is not None else None,
        unknowns=tuple(unknowns),
        kinds=kinds,
        stored_bytes=stored,
        row=row,
        known=found is not None,
        numbers=dimensions,
    )


def _integer(value: Any, raw: Any) -> Any:
    """A size as a whole number where it is one; else what the config holds, for the message."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is not None else raw


__all__ = ["Checkpoint", "InputError", "LayerKind", "read_checkpoint"]
