# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A checkpoint as the planner sees it, read from config.json and what lies beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .findings import Finding
from .quantization import Quantization


class InputError(ValueError):
    """Bad input: ``field`` names what is wrong, the message what was expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Checkpoint:
    """Facts of one checkpoint.

    ``text`` is the language model's config with the names of today's transformers (``num_hidden_layers``,
    ``num_attention_heads``, ``num_key_value_heads``, ``head_dim``, ``intermediate_size``, ``num_experts``,
    ``num_experts_per_tok``, ``moe_intermediate_size`` ...), the family's defaults filled in where the file
    leaves a key out; keys the file has are kept beside them.
    ``dtype_bytes`` belongs to the dtype the model runs in: 2 for a float32 checkpoint.
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


_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
_ALIASES = {
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "hidden_size": ("n_embd", "d_model", "model_dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups"),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len", "max_sequence_length"),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_topk", "num_experts_per_token", "moe_k", "experts_per_token"),
}


def read_checkpoint(model: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint that ``model`` (``id``, ``config``, optional sizes and texts) describes; InputError if bad."""
    if not isinstance(model, Mapping):
        raise InputError("model", f"expected a mapping with id and config, got {type(model).__name__}")
    config = model.get("config")
    if not isinstance(config, Mapping) or not config:
        raise InputError("model.config", "expected the content of config.json as a non-empty mapping")
    text: dict[str, Any] = dict(next((config[k] for k in _TEXT_KEYS if isinstance(config.get(k), Mapping)), config))
    for name, aliases in _ALIASES.items():
        if text.get(name) is None:
            found = next((text[alias] for alias in aliases if text.get(alias) is not None), None)
            if found is not None:
                text[name] = found
    for name in ("num_hidden_layers", "hidden_size", "vocab_size"):
        if not isinstance(text.get(name), int):
            raise InputError(f"model.config.{name}", f"expected a positive whole number, got {text.get(name)!r}")
    architectures = config.get("architectures") or [""]
    dtype = str(text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    heads = text.get("num_attention_heads") or 0
    if heads and text.get("num_key_value_heads") is None:
        text["num_key_value_heads"] = heads
    if heads and text.get("head_dim") is None:
        text["head_dim"] = text["hidden_size"] // heads
    return Checkpoint(
        id=str(model.get("id") or ""),
        architecture=str(architectures[0]),
        model_type=str(config.get("model_type") or ""),
        family=str(config.get("model_type") or ""),
        config=config,
        text=text,
        layers=text["num_hidden_layers"],
        hidden_size=text["hidden_size"],
        vocab_size=text["vocab_size"],
        dtype=dtype.removeprefix("torch."),
        dtype_bytes=2,
        quantization=Quantization(),
        native_context=text.get("max_position_embeddings"),
        rope_scaling=text.get("rope_scaling") or text.get("rope_parameters"),
        tied_embeddings=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        mtp_layers=int(text.get("num_nextn_predict_layers") or text.get("mtp_num_hidden_layers") or 0),
        multimodal="vision_config" in config,
        remote_code="auto_map" in config,
        sparsity="moe" if (text.get("num_experts") or 0) > 1 else "dense",
        files=tuple(model.get("files") or ()),
        tokenizer_config=model.get("tokenizer_config") or {},
        chat_template=model.get("chat_template"),
        tensors=model.get("tensors") or {},
        weight_bytes=model.get("weight_bytes"),
    )
