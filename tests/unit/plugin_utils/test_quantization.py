"""How weights are stored: every format of quantization_config and hf_quant_config.json."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.quantization import (
    UNQUANTIZED,
    read_quantization,
)


def compressed(weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


@pytest.mark.parametrize(
    ("config", "method", "format", "bits"),
    [
        (None, "none", "none", 16),
        ({}, "none", "none", 16),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "fp8", 8.002),
        ({"quant_method": "fp8", "weight_block_size": None}, "fp8", "fp8", 8),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", "fp8", 8),
        ({"quant_method": "mxfp4"}, "mxfp4", "mxfp4", 4.25),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", "int4", 4.156),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq", "int4", 4.312),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq", "int4", 4.156),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "gptq", "int8", 8.625),
        ({"bits": 3, "group_size": -1, "quant_method": "gptq"}, "gptq", "int3", 3),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "auto-round", "int4", 4.156),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", "nf4", 4.127),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", "int8", 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "modelopt", "nvfp4", 4.5),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "modelopt", "fp8", 8),
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}}, "modelopt", "fp8", 8),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "modelopt", "mxfp8", 8.25),
        (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}},
            "torchao",
            "int4",
            4.125,
        ),
        (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}), "compressed-tensors", "fp8", 8),
        (
            compressed({"num_bits": 8, "type": "float", "strategy": "block"}),
            "compressed-tensors",
            "fp8",
            8.002,
        ),
        (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}), "compressed-tensors", "int8", 8),
        (
            compressed({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}),
            "compressed-tensors",
            "int4",
            4.5,
        ),
        (compressed({"num_bits": 4, "type": "float", "group_size": 16}), "compressed-tensors", "nvfp4", 4.5),
        (
            compressed({"num_bits": 4, "type": "float", "group_size": 32}, format="mxfp4-pack-quantized"),
            "compressed-tensors",
            "mxfp4",
            4.25,
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}},
            },
            "quark",
            "mxfp4",
            4.25,
        ),
    ],
)
def test_formats(config: Any, method: str, format: str, bits: float) -> None:
    read = read_quantization(config)
    assert (read.method, read.format) == (method, format)
    assert read.bits_per_weight == pytest.approx(bits, abs=0.001)
    assert read.known


def test_file_beside_the_config() -> None:
    beside = {
        "producer": {"name": "modelopt"},
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "group_size": 16,
            "exclude_modules": ["lm_head"],
        },
    }
    alone = read_quantization(None, beside)
    assert (alone.method, alone.format, alone.algo, alone.kv_cache) == ("modelopt", "nvfp4", "NVFP4", "fp8")
    both = read_quantization(
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0*"]}, beside
    )
    assert both.scheme_of("self_attn.q_proj", 0) is UNQUANTIZED
    assert both.scheme_of("self_attn.q_proj", 1).format == "nvfp4"


@pytest.mark.parametrize(
    ("pattern", "tensor", "layer", "plain"),
    [
        ("model.layers.3.self_attn.q_proj", "self_attn.q_proj", 3, True),
        ("model.layers.3.self_attn.q_proj", "self_attn.q_proj", 4, False),
        ("model.layers.3.self_attn.q_proj", "self_attn.k_proj", 3, False),
        ("model.layers.3.self_attn*", "self_attn.k_proj", 3, True),
        ("model.layers.3.*", "mlp.up_proj", 3, True),
        ("model.layers.1*", "mlp.up_proj", 1, True),
        ("model.layers.*.self_attn", "self_attn.o_proj", 7, True),
        ("model.layers.*.mlp.router", "mlp.experts.*.up_proj", 7, False),
        ("model.language_model.layers.0.linear_attn*", "linear_attn.out_proj", 0, True),
        ("backbone.layers.4.mixer.in_proj", "mixer.in_proj", 4, True),
        ("re:.*self_attn.*", "self_attn.kv_b_proj", 9, True),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "mlp.up_proj", 9, True),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "mlp.experts.*.up_proj", 9, False),
        ("self_attn.o_proj", "self_attn.o_proj", 2, True),
        ("gate", "mlp.gate", 2, True),
        ("gate", "mlp.gate_proj", 2, False),
        ("*mlp.shared_expert*", "mlp.shared_expert.up_proj", 2, True),
        ("vision_model.model.layers.0.self_attn.q_proj", "self_attn.q_proj", 0, False),
        ("visual", "self_attn.q_proj", 0, False),
    ],
)
def test_modules_left_alone(pattern: str, tensor: str, layer: int, plain: bool) -> None:
    read = read_quantization(compressed({"num_bits": 8, "type": "float"}, ignore=[pattern]))
    assert (read.scheme_of(tensor, layer) is UNQUANTIZED) is plain


def test_mixed_precision_layer_by_layer() -> None:
    layers = {
        "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    read = read_quantization({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert (read.format, read.algo) == ("mixed", "MIXED_PRECISION")
    assert read.scheme_of("mlp.up_proj", 0).format == "nvfp4"
    assert read.scheme_of("self_attn.q_proj", 0).format == "fp8"
    assert read.scheme_of("mlp.up_proj", 1) is UNQUANTIZED


def test_groups_with_targets_of_their_own() -> None:
    groups = {
        "experts": {
            "targets": ["re:.*experts.*"],
            "weights": {"num_bits": 4, "type": "int", "group_size": 32},
        },
        "rest": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
    }
    read = read_quantization({"quant_method": "compressed-tensors", "config_groups": groups})
    assert read.format == "mixed"
    assert read.scheme_of("mlp.experts.*.up_proj", 3).format == "int4"
    assert read.scheme_of("self_attn.q_proj", 3).format == "fp8"


def test_experts_only() -> None:
    read = read_quantization({"quant_method": "mxfp4"})
    assert read.scheme_of("mlp.experts.*.up_proj", 0).format == "mxfp4"
    assert read.scheme_of("self_attn.q_proj", 0) is UNQUANTIZED


def test_bits_of_single_modules() -> None:
    config = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 16}},
    }
    assert read_quantization(config).scheme_of("mlp.up_proj", 0) is UNQUANTIZED
    dynamic = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {"-:.*mlp.gate$": {}, "+:.*self_attn.*": {"bits": 8}},
    }
    read = read_quantization(dynamic)
    assert read.scheme_of("mlp.gate", 5) is UNQUANTIZED
    assert read.scheme_of("self_attn.q_proj", 5).bits == 8


@pytest.mark.parametrize(
    ("config", "cache"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_scheme": None}, None),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
    ],
)
def test_cache_scales(config: dict[str, Any], cache: str | None) -> None:
    assert read_quantization({"quant_method": "modelopt", "quant_algo": "FP8", **config}).kv_cache == cache


@pytest.mark.parametrize(
    ("config", "rows", "columns", "size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 256, 512, 256 * 512 + 8 * 4),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 100, 130, 100 * 130 + 2 * 4),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 64, 64, 64 * 32 + 64 * 4),
        ({"quant_method": "mxfp4"}, 64, 64, 64 * 32 + 64 * 2),
        (
            compressed({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}),
            64,
            64,
            64 * 32 + 64 * 2 * 2,
        ),
    ],
)
def test_bytes_of_a_weight(config: dict[str, Any], rows: int, columns: int, size: int) -> None:
    assert read_quantization(config).scheme.stored_bytes(rows, columns) == size
