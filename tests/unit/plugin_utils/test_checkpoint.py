"""Reading a checkpoint: names, defaults, layer kinds, and refusals that name the field."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import (
    Checkpoint,
    InputError,
    read_checkpoint,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.weights import (
    active_weight_bytes,
    stage_weights,
    weigh,
    weight_findings,
)
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts
from hypothesis import given, settings
from hypothesis import strategies as st

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def read(config: Any = None, /, **changes: Any) -> Checkpoint:
    """A checkpoint of ``config`` (Llama's if none is given) with keys changed; ``...`` takes one away."""
    made = {**(LLAMA if config is None else config), **changes}
    return read_checkpoint({"id": "test/model", "config": {k: v for k, v in made.items() if v is not ...}})


def test_plain_config() -> None:
    model = read()
    assert (model.family, model.architecture, model.layers, model.hidden_size) == (
        "llama",
        "LlamaForCausalLM",
        32,
        4096,
    )
    assert (model.vocab_size, model.native_context, model.dtype, model.dtype_bytes) == (
        128256,
        131072,
        "bfloat16",
        2,
    )
    assert (model.sparsity, model.multimodal, model.remote_code, model.tied_embeddings) == (
        "dense",
        False,
        False,
        False,
    )
    assert model.text["head_dim"] == 128
    assert not model.unknowns


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (None, "model"),
        ("llama", "model"),
        ({}, "model.config"),
        ({"config": None}, "model.config"),
        ({"config": []}, "model.config"),
        ({"config": "{}"}, "model.config"),
        ({"config": {}}, "model.config"),
        ({"config": LLAMA, "weight_bytes": -1}, "model.weight_bytes"),
        ({"config": LLAMA, "weight_bytes": "many"}, "model.weight_bytes"),
        ({"config": LLAMA, "tensors": []}, "model.tensors"),
        ({"config": LLAMA, "quant_config": "fp8"}, "model.quant_config"),
        ({"config": {**LLAMA, "quantization_config": [1]}}, "model.config.quantization_config"),
    ],
)
def test_input_that_is_none(model: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_checkpoint(model)
    assert caught.value.field == field
    assert "expected" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_hidden_layers": ...}, "num_hidden_layers"),
        ({"hidden_size": ...}, "hidden_size"),
        ({"vocab_size": ...}, "vocab_size"),
        ({"num_attention_heads": ...}, "num_attention_heads"),
        ({"intermediate_size": ...}, "intermediate_size"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": -4096}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 0.5}, "hidden_size"),
        ({"num_hidden_layers": math.inf}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_experts": "64"}, "num_experts"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_local_experts": -8}, "num_experts"),
        ({"num_nextn_predict_layers": 10**12}, "num_nextn_predict_layers"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert caught.value.field == f"model.config.{field}"
    assert "expected" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"num_hidden_layers": ..., "n_layer": 12}, "num_hidden_layers", 12),
        ({"hidden_size": ..., "n_embd": 1024}, "hidden_size", 1024),
        ({"num_attention_heads": ..., "n_head": 16}, "num_attention_heads", 16),
        ({"num_key_value_heads": ..., "num_kv_heads": 4}, "num_key_value_heads", 4),
        ({"num_key_value_heads": ..., "multi_query_group_num": 2}, "num_key_value_heads", 2),
        ({"num_key_value_heads": None}, "num_key_value_heads", 32),
        ({"head_dim": None}, "head_dim", 128),
        ({"n_routed_experts": 64, "num_experts_per_tok": 6}, "num_experts", 64),
        ({"moe_num_experts": 64, "moe_k": 6}, "num_experts_per_tok", 6),
        ({"vocab_size": ..., "padded_vocab_size": 65024}, "vocab_size", 65024),
        ({"max_position_embeddings": ..., "seq_length": 8192}, "max_position_embeddings", 8192),
    ],
)
def test_other_names(changes: dict[str, Any], name: str, value: int) -> None:
    assert read(**changes).text[name] == value


def test_text_config_inside() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "architectures"}
    for key in ("text_config", "llm_config", "language_config"):
        model = read(
            {
                "architectures": ["LlavaForConditionalGeneration"],
                "model_type": "llava",
                key: inner,
                "vision_config": {},
            }
        )
        assert (model.layers, model.family, model.multimodal) == (32, "llama", True)
    omni = {
        "model_type": "qwen3_omni_moe",
        "thinker_config": {"text_config": inner, "audio_config": {"d_model": 1280}},
    }
    assert (read(omni).layers, read(omni).multimodal) == (32, True)


def test_inner_config_takes_the_familys_defaults() -> None:
    model = read(
        {
            "model_type": "gemma3",
            "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34},
        }
    )
    assert (model.vocab_size, model.text["head_dim"], model.text["num_attention_heads"]) == (262208, 256, 8)
    assert model.tied_embeddings


def test_own_config_does_not() -> None:
    with pytest.raises(InputError, match="vocab_size"):
        read({**LLAMA, "model_type": "qwen3"}, vocab_size=...)


def test_context_that_is_not_said_is_not_known() -> None:
    assert read({**LLAMA, "model_type": "granitemoehybrid"}, max_position_embeddings=...).native_context is None


def test_but_where_the_familys_files_leave_it_out() -> None:
    model = read(
        {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "num_hidden_layers": 62,
            "intermediate_size": 21504,
        }
    )
    assert model.vocab_size == 262208


def test_null_is_not_the_default() -> None:
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    model = read(model_type="deepseek_v2", q_lora_rank=None, **latent)
    assert model.numbers.get("q_lora_rank") is None
    assert read(model_type="deepseek_v3", **latent).numbers.get("q_lora_rank") == 1536


def test_tied_embeddings() -> None:
    assert read(tie_word_embeddings=True).tied_embeddings
    assert read(model_type="smollm3").tied_embeddings  # the key is missing: the class's default
    assert not read(model_type="smollm3", tie_word_embeddings=False).tied_embeddings
    inner = {**LLAMA, "tie_word_embeddings": True}
    assert read({"model_type": "llava", "text_config": inner}).tied_embeddings


@pytest.mark.parametrize(
    ("dtype", "runs", "stored"),
    [("bfloat16", 2, 2), ("float32", 2, 4), ("float16", 2, 2), ("torch.bfloat16", 2, 2)],
)
def test_dtype(dtype: str, runs: int, stored: int) -> None:
    for key in ("torch_dtype", "dtype"):
        model = read(torch_dtype=..., **{key: dtype}) if key == "dtype" else read(torch_dtype=dtype)
        assert (model.dtype_bytes, model.stored_bytes) == (runs, stored)
        assert not model.dtype.startswith("torch")


def mixers(config: dict[str, Any] | None = None, /, **changes: Any) -> list[str]:
    return [kind.mixer for kind in read(config, num_hidden_layers=8, **changes).kinds]


def mlps(**changes: Any) -> list[str]:
    return [kind.mlp for kind in read(num_hidden_layers=6, num_experts=8, num_experts_per_tok=2, **changes).kinds]


F, S, C, L, M = "full_attention", "sliding_attention", "chunked_attention", "linear_attention", "mamba"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [F] * 8),
        ({"layer_types": [S, F] * 4}, [S, F] * 4),
        ({"sliding_window": 4096}, [S] * 8),
        ({"sliding_window": 4096, "use_sliding_window": False}, [F] * 8),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 5}, [F] * 5 + [S] * 3),
        ({"sliding_window_pattern": 4}, [S, S, S, F] * 2),
        ({"sliding_window_pattern": "LLLG"}, [S, S, S, F] * 2),
        ({"model_type": "gemma2"}, [S, F] * 4),
        ({"model_type": "gemma3_text"}, [S] * 5 + [F, S, S]),
        ({"model_type": "qwen3_next", "full_attention_interval": 4}, [L, L, L, F] * 2),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, [C, C, C, F] * 2),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 0] * 4},
            [C, F] * 4,
        ),
        ({"model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": 1}, [M, F, M, M] * 2),
        ({"model_type": "bamba", "attn_layer_indices": [2, 5]}, [M, M, F, M, M, F, M, M]),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*MEM*"},
            [M, "none", M, F, M, "none", M, F],
        ),
        ({"hybrid_layer_pattern": [0, 1] * 4}, [F, S] * 4),
        ({"attn_type_list": [0, 1] * 4}, [L, F] * 4),
        ({"model_type": "kimi_linear", "linear_attn_config": {"full_attn_layers": [4, 8]}}, [L, L, L, F] * 2),
        ({"cross_attention_layers": [3]}, [F, F, F, "cross_attention", F, F, F, F]),
        (
            {"model_type": "deepseek_v4", "compress_ratios": [0, 4, 128, 4, 128, 4, 128, 4, 0]},
            [
                S,
                *["compressed_sparse_attention", "heavily_compressed_attention"] * 3,
                "compressed_sparse_attention",
            ],
        ),
        ({"model_type": "lfm2", "layer_types": ["conv", F] * 4}, ["conv", F] * 4),
        ({"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 4}, [M, F] * 4),
        ({"model_type": "falcon_h1"}, ["hybrid"] * 8),
    ],
)
def test_mixers(changes: dict[str, Any], expected: list[str]) -> None:
    assert mixers(**changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ssssss"),
        ({"first_k_dense_replace": 2}, "ddssss"),
        ({"mlp_only_layers": [0, 5]}, "dssssd"),
        ({"decoder_sparse_step": 2}, "dsdsds"),
        ({"moe_layer_freq": [0, 1, 1, 1, 1, 0]}, "dssssd"),
        ({"interleave_moe_layer_step": 3}, "ddsdds"),
        ({"moe_layers": [1, 4]}, "dsddsd"),
        ({"moe_layers_enum": "3,4,5"}, "dddsss"),
        ({"mlp_layer_types": ["dense", "sparse"] * 3}, "dsdsds"),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 4}, "dssssd"),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, "dsdsds"),
    ],
)
def test_feed_forward_parts(changes: dict[str, Any], expected: str) -> None:
    assert "".join(kind[0] for kind in mlps(**changes)) == expected


def test_layers_counted_by_their_list() -> None:
    kinds = ["mamba", "moe", "attention", "moe"]
    model = read(model_type="nemotron_h", num_hidden_layers=..., layers_block_type=kinds, n_routed_experts=8)
    assert [(kind.mixer, kind.mlp) for kind in model.kinds] == [
        (M, "none"),
        ("none", "sparse"),
        (F, "none"),
        ("none", "sparse"),
    ]


def test_layers_with_sizes_of_their_own() -> None:
    blocks = [
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": True}},
    ]
    model = read(
        model_type="nemotron-nas",
        num_hidden_layers=2,
        num_key_value_heads=None,
        intermediate_size=None,
        block_configs=blocks,
    )
    assert [(kind.mixer, kind.mlp) for kind in model.kinds] == [("none", "dense"), (F, "none")]
    assert model.dimensions(0).get("intermediate_size") == 7168
    assert model.dimensions(1).get("num_key_value_heads") == 4
    lists = read(num_hidden_layers=2, num_key_value_heads=[2, 4], intermediate_size=[100, 200])
    assert [lists.dimensions(index).get("intermediate_size") for index in (0, 1)] == [100, 200]


def test_unknown_architecture_is_said() -> None:
    model = read(architectures=["BrandNewForCausalLM"], model_type="brand_new")
    assert [finding.id for finding in model.unknowns] == ["architecture-unknown"]
    assert [finding.id for finding in weight_findings(model)] == ["parameters-estimated"]
    assert weigh(model).parameters == weigh(read()).parameters


def test_unknown_layer_kind_is_said() -> None:
    model = read(layer_types=["quantum_attention"] * 32)
    assert [finding.id for finding in model.unknowns] == ["layer-kind-unknown"]


def test_unknown_quantization_is_said() -> None:
    model = read(quantization_config={"quant_method": "brand-new", "bits": 3})
    assert [finding.id for finding in model.unknowns] == ["quantization-unknown"]


def test_formats_that_only_the_family_knows() -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = read(model_type="deepseek_v4", expert_dtype="fp4", quantization_config=block)
    assert (model.quantization.method, model.quantization.format) == ("fp8", "mixed")
    assert model.quantization.bits_per_weight == 4.25
    assert model.quantization.scheme_of("mlp.experts.*.up_proj", 3).format == "mxfp4"
    assert model.quantization.scheme_of("self_attn.q_b_proj", 3).format == "fp8"
    assert read(model_type="deepseek_v4", quantization_config=block).quantization.format == "fp8"


def test_architecture_stands_in_for_the_model_type() -> None:
    model = read(model_type="house_name", architectures=["Qwen3ForCausalLM"])
    assert model.family == "qwen"
    assert not model.unknowns


@pytest.mark.parametrize("name", shared_facts.model_names() or [""])
def test_every_real_config_is_answered(name: str) -> None:
    model = read_checkpoint(shared_facts.model_input(name))
    assert model.known
    assert not [finding for finding in (*model.unknowns, *weight_findings(model)) if finding.level != "note"]
    assert weigh(model).parameters > 0


JUNK = st.sampled_from(
    [
        None,
        0,
        -1,
        1,
        7,
        "x",
        "64",
        [],
        {},
        [1, 2],
        [None],
        [{}],
        3.5,
        math.nan,
        math.inf,
        True,
        10**12,
        "auto",
        {"a": 1},
    ]
)
HYBRID = {
    **LLAMA,
    "model_type": "qwen3_5_moe_text",
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "layer_types": [L, L, L, F] * 8,
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": ["lm_head"],
    },
    "linear_attn_config": {"full_attn_layers": [4]},
    "vision_config": {"depth": 2, "hidden_size": 64, "intermediate_size": 128},
    "block_configs": None,
    "num_nextn_predict_layers": 1,
}


@given(st.dictionaries(st.sampled_from(sorted(HYBRID)), JUNK, max_size=3))
@settings(max_examples=150, deadline=None)
def test_no_traceback_whatever_the_config_holds(changes: dict[str, Any]) -> None:
    config = {**copy.deepcopy(HYBRID), **changes}
    try:
        model = read_checkpoint({"config": config})
        stage_weights(model, 1)
        active_weight_bytes(model)
        weight_findings(model)
    except InputError as error:
        field = error.field
    else:
        field = "model.config"
    assert field.startswith("model.config")
