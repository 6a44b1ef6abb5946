"""Parameters and bytes: published figures, the layer split, the ends of a pipeline."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import (
    Checkpoint,
    InputError,
    read_checkpoint,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.weights import (
    active_weight_bytes,
    loaded_bytes,
    split_layers,
    stage_weights,
    weigh,
    weight_findings,
)
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts
from hypothesis import given
from hypothesis import strategies as st

# Published totals (the safetensors' own count) and the configs they belong to, cut to what counts.
PUBLISHED: list[tuple[str, int, dict[str, Any]]] = [
    (
        "Llama-3.1-8B",
        8_030_261_248,
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        },
    ),
    (
        "Qwen2.5-0.5B",
        494_032_768,
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
    ),
    (
        "Phi-3.5-mini",
        3_821_079_552,
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 8192,
            "vocab_size": 32064,
        },
    ),
    (
        "Phi-3-medium",
        13_960_238_080,
        {
            "model_type": "phi3",
            "hidden_size": 5120,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "num_key_value_heads": 10,
            "intermediate_size": 17920,
            "vocab_size": 32064,
        },
    ),
    (
        "Phi-4-mini",
        3_836_021_760,
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "intermediate_size": 8192,
            "vocab_size": 200064,
            "tie_word_embeddings": True,
        },
    ),
    (
        "falcon-7b",
        6_921_720_704,
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "new_decoder_architecture": False,
            "tie_word_embeddings": True,
        },
    ),
    (
        "falcon-40b",
        41_835_921_408,
        {
            "model_type": "falcon",
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "new_decoder_architecture": True,
            "tie_word_embeddings": False,
        },
    ),
    (
        "bloom-560m",
        559_214_592,
        {
            "model_type": "bloom",
            "n_embed": 1024,
            "hidden_size": 1024,
            "n_layer": 24,
            "n_head": 16,
            "vocab_size": 250880,
            "tie_word_embeddings": True,
        },
    ),
    (
        "gpt2",
        124_439_808,
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "vocab_size": 50257,
            "n_positions": 1024,
            "n_ctx": 1024,
        },
    ),
    (
        "opt-125m",
        125_239_296,
        {
            "model_type": "opt",
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "ffn_dim": 3072,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": 768,
        },
    ),
    (
        "pythia-6.9b",
        6_857_302_016,
        {
            "model_type": "gpt_neox",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 16384,
            "vocab_size": 50432,
            "tie_word_embeddings": False,
        },
    ),
    (
        "gemma-2-9b",
        9_241_705_984,
        {
            "model_type": "gemma2",
            "hidden_size": 3584,
            "num_hidden_layers": 42,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 256000,
            "head_dim": 256,
        },
    ),
    (
        "mamba-2.8b",
        2_768_345_600,
        {
            "model_type": "mamba",
            "hidden_size": 2560,
            "num_hidden_layers": 64,
            "vocab_size": 50280,
            "state_size": 16,
            "intermediate_size": 5120,
            "time_step_rank": 160,
        },
    ),
    (
        "dbrx",
        131_596_523_520,
        {
            "model_type": "dbrx",
            "d_model": 6144,
            "n_layers": 40,
            "n_heads": 48,
            "vocab_size": 100352,
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
            "tie_word_embeddings": False,
        },
    ),
    (
        "OLMoE",
        6_919_161_856,
        {
            "model_type": "olmoe",
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "intermediate_size": 1024,
            "vocab_size": 50304,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
    ),
    (
        "DeepSeek-V2",
        235_741_434_880,
        {
            "model_type": "deepseek_v2",
            "hidden_size": 5120,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "intermediate_size": 12288,
            "vocab_size": 102400,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "moe_intermediate_size": 1536,
            "n_routed_experts": 160,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
        },
    ),
    (
        "Trinity-Mini",
        26_123_974_400,
        {
            "model_type": "afmoe",
            "hidden_size": 2048,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "intermediate_size": 6144,
            "vocab_size": 200192,
            "head_dim": 128,
            "moe_intermediate_size": 1024,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "num_dense_layers": 2,
            "tie_word_embeddings": False,
        },
    ),
    (
        "Ling-flash-2.0",
        102_889_705_216,
        {
            "model_type": "bailing_moe",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "intermediate_size": 9216,
            "vocab_size": 157184,
            "head_dim": 128,
            "moe_intermediate_size": 1024,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "use_qkv_bias": False,
            "use_bias": False,
            "moe_router_enable_expert_bias": True,
            "tie_word_embeddings": False,
            "moe_shared_expert_intermediate_size": 1024,
        },
    ),
    (
        "Qwen3-Coder-Next",
        79_674_391_296,
        {
            "model_type": "qwen3_next",
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "intermediate_size": 5120,
            "vocab_size": 151936,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "decoder_sparse_step": 1,
        },
    ),
    (
        "granite-4.1-8b",
        8_791_592_960,
        {
            "model_type": "granite",
            "hidden_size": 4096,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 12800,
            "vocab_size": 100352,
            "tie_word_embeddings": False,
        },
    ),
    (
        "SmolLM3",
        3_075_098_624,
        {
            "model_type": "smollm3",
            "hidden_size": 2048,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "intermediate_size": 11008,
            "vocab_size": 128256,
        },
    ),
    (
        "c4ai-command-r-v01",
        34_980_831_232,
        {
            "model_type": "cohere",
            "hidden_size": 8192,
            "num_hidden_layers": 40,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "intermediate_size": 22528,
            "vocab_size": 256000,
        },
    ),
    (
        "Baichuan2-7B",
        7_505_973_248,
        {
            "model_type": "baichuan",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 11008,
            "vocab_size": 125696,
        },
    ),
    (
        "internlm2-7b",
        7_737_708_544,
        {
            "model_type": "internlm2",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 92544,
            "bias": False,
        },
    ),
    (
        "Qwen-7B",
        7_721_324_544,
        {
            "model_type": "qwen",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 22016,
            "vocab_size": 151936,
            "no_bias": True,
        },
    ),
    (
        "chatglm3-6b",
        6_243_584_000,
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 65024,
            "kv_channels": 128,
            "add_qkv_bias": True,
            "add_bias_linear": False,
        },
    ),
    (
        "stablelm-2-1_6b",
        1_644_515_328,
        {
            "model_type": "stablelm",
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 5632,
            "vocab_size": 100352,
            "use_qkv_bias": True,
        },
    ),
    (
        "phi-2",
        2_779_683_840,
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 10240,
            "vocab_size": 51200,
        },
    ),
    (
        "mpt-7b",
        6_649_286_656,
        {
            "model_type": "mpt",
            "d_model": 4096,
            "n_layers": 32,
            "n_heads": 32,
            "vocab_size": 50432,
            "expansion_ratio": 4,
        },
    ),
    (
        "starcoder2-15b",
        15_957_889_024,
        {
            "model_type": "starcoder2",
            "hidden_size": 6144,
            "num_hidden_layers": 40,
            "num_attention_heads": 48,
            "num_key_value_heads": 4,
            "intermediate_size": 24576,
            "vocab_size": 49152,
            "use_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    (
        "starcoderbase",
        15_517_456_384,
        {
            "model_type": "gpt_bigcode",
            "n_embd": 6144,
            "n_layer": 40,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "vocab_size": 49152,
            "multi_query": True,
        },
    ),
    (
        "gpt-j-6b",
        6_050_882_784,
        {
            "model_type": "gptj",
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "vocab_size": 50400,
            "tie_word_embeddings": False,
        },
    ),
]

# The same with towers and prediction layers, which the files' own count includes.
TOTALS: list[tuple[str, int, dict[str, Any]]] = [
    (
        "Hunyuan-A13B",
        80_393_183_232,
        {
            "model_type": "hunyuan_v1_moe",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 3072,
            "vocab_size": 128167,
            "num_experts": 64,
            "moe_topk": [
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
                8,
            ],
            "moe_intermediate_size": [
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
                3072,
            ],
            "num_shared_expert": [
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
                1,
            ],
            "use_mixed_mlp_moe": True,
            "use_qk_norm": True,
            "tie_word_embeddings": True,
            "attention_head_dim": 128,
            "head_dim": 128,
        },
    ),
    (
        "MiniMax-Text-01",
        456_089_655_296,
        {
            "model_type": "minimax_text_01",
            "hidden_size": 6144,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "intermediate_size": 9216,
            "vocab_size": 200064,
            "head_dim": 128,
            "num_local_experts": 32,
            "num_experts_per_tok": 2,
            "attn_type_list": [
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                1,
            ],
            "shared_intermediate_size": 0,
        },
    ),
    (
        "dots.llm1",
        142_774_381_696,
        {
            "model_type": "dots1",
            "hidden_size": 4096,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 10944,
            "vocab_size": 152064,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 128,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "tie_word_embeddings": False,
        },
    ),
    (
        "GLM-4.5-Air",
        110_468_824_832,
        {
            "model_type": "glm4_moe",
            "hidden_size": 4096,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "intermediate_size": 10944,
            "vocab_size": 151552,
            "head_dim": 128,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 128,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 1,
            "attention_bias": True,
            "use_qk_norm": False,
            "tie_word_embeddings": False,
        },
    ),
    (
        "GLM-4-9B-0414",
        9_400_279_040,
        {
            "model_type": "glm4",
            "hidden_size": 4096,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "intermediate_size": 13696,
            "vocab_size": 151552,
            "attention_bias": True,
            "head_dim": 128,
            "tie_word_embeddings": False,
        },
    ),
    (
        "Kimi-K2",
        1_026_408_240_256,
        {
            "model_type": "kimi_k2",
            "hidden_size": 7168,
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "intermediate_size": 18432,
            "vocab_size": 163840,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "moe_intermediate_size": 2048,
            "n_routed_experts": 384,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "num_nextn_predict_layers": 0,
        },
    ),
    (
        "Llama-4-Maverick",
        401_583_781_376,
        {
            "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text",
                "hidden_size": 5120,
                "num_hidden_layers": 48,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
                "intermediate_size": 8192,
                "vocab_size": 202048,
                "head_dim": 128,
                "intermediate_size_mlp": 16384,
                "num_local_experts": 128,
                "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 2,
                "attention_chunk_size": 8192,
            },
        },
    ),
    (
        "Jamba-1.5-Large",
        398_557_401_600,
        {
            "model_type": "jamba",
            "hidden_size": 8192,
            "num_hidden_layers": 72,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "intermediate_size": 24576,
            "vocab_size": 65536,
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": 512,
        },
    ),
    (
        "Apertus-8B",
        8_053_338_176,
        {
            "model_type": "apertus",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 21504,
            "vocab_size": 131072,
            "tie_word_embeddings": False,
        },
    ),
    (
        "EXAONE-3.5-7.8B",
        7_818_448_896,
        {
            "model_type": "exaone",
            "architectures": ["ExaoneForCausalLM"],
            "hidden_size": 4096,
            "num_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 102400,
            "tie_word_embeddings": False,
        },
    ),
    (
        "OLMo-3-7B",
        7_298_011_136,
        {
            "model_type": "olmo3",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 11008,
            "vocab_size": 100278,
            "tie_word_embeddings": False,
            "layer_types": [
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
            ],
        },
    ),
    (
        "Nemotron-4-340B",
        341_029_945_344,
        {
            "model_type": "nemotron",
            "hidden_size": 18432,
            "num_hidden_layers": 96,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "intermediate_size": 73728,
            "vocab_size": 256000,
            "tie_word_embeddings": False,
        },
    ),
    (
        "Qwen2-VL-7B",
        8_291_375_616,
        {
            "model_type": "qwen2_vl",
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
            "vision_config": {
                "depth": 32,
                "embed_dim": 1280,
                "mlp_ratio": 4,
                "num_heads": 16,
                "in_chans": 3,
                "hidden_size": 3584,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
        },
    ),
    (
        "Qwen2.5-VL-7B",
        8_292_166_656,
        {
            "model_type": "qwen2_5_vl",
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
            "vision_config": {
                "depth": 32,
                "hidden_size": 1280,
                "intermediate_size": 3420,
                "num_heads": 16,
                "out_hidden_size": 3584,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "in_chans": 3,
            },
        },
    ),
    (
        "Mistral-Small-3.1-24B",
        24_011_361_280,
        {
            "model_type": "mistral3",
            "text_config": {
                "model_type": "mistral",
                "hidden_size": 5120,
                "num_hidden_layers": 40,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 32768,
                "vocab_size": 131072,
                "head_dim": 128,
            },
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "patch_size": 14,
            },
        },
    ),
    (
        "InternVL3-8B",
        7_944_373_760,
        {
            "model_type": "internvl_chat",
            "llm_config": {
                "model_type": "qwen2",
                "hidden_size": 3584,
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "intermediate_size": 18944,
                "vocab_size": 151674,
            },
            "vision_config": {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "patch_size": 14,
                "image_size": 448,
                "num_attention_heads": 16,
                "qkv_bias": True,
            },
        },
    ),
    (
        "GLM-4.5V",
        107_710_933_120,
        {
            "model_type": "glm4v_moe",
            "text_config": {
                "model_type": "glm4v_moe_text",
                "hidden_size": 4096,
                "num_hidden_layers": 46,
                "num_attention_heads": 96,
                "num_key_value_heads": 8,
                "intermediate_size": 10944,
                "vocab_size": 151552,
                "head_dim": 128,
                "moe_intermediate_size": 1408,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "first_k_dense_replace": 1,
                "attention_bias": True,
            },
            "vision_config": {
                "model_type": "glm4v_moe",
                "depth": 24,
                "hidden_size": 1536,
                "intermediate_size": 10944,
                "out_hidden_size": 4096,
                "num_heads": 12,
                "patch_size": 14,
                "image_size": 336,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
        },
    ),
    (
        "Zamba2-7B",
        7_356_749_824,
        {
            "model_type": "zamba2",
            "hidden_size": 3584,
            "num_hidden_layers": 81,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "num_mem_blocks": 2,
            "adapter_rank": 128,
            "mamba_d_state": 64,
            "mamba_ngroups": 2,
            "n_mamba_heads": 112,
            "mamba_headdim": 64,
            "mamba_expand": 2,
            "use_shared_attention_adapter": False,
            "hybrid_layer_ids": [6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77],
            "attention_head_dim": 224,
            "tie_word_embeddings": True,
        },
    ),
    (
        "MiMo-7B",
        7_833_409_536,
        {
            "model_type": "mimo",
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 11008,
            "vocab_size": 151680,
            "num_nextn_predict_layers": 1,
            "head_dim": 128,
        },
    ),
    (
        "LFM2-1.2B",
        1_170_340_608,
        {
            "model_type": "lfm2",
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "block_ff_dim": 12288,
            "block_auto_adjust_ff_dim": True,
            "block_ffn_dim_multiplier": 1.0,
            "block_multiple_of": 256,
            "vocab_size": 65536,
            "conv_L_cache": 3,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        },
    ),
]

LLAMA = PUBLISHED[0][2]
QWEN = PUBLISHED[1][2]


def read(config: dict[str, Any], **more: Any) -> Checkpoint:
    return read_checkpoint({"id": "test/model", "config": config, **more})


@pytest.mark.parametrize(("name", "parameters", "config"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_parameters(name: str, parameters: int, config: dict[str, Any]) -> None:
    model = read(config)
    assert not weight_findings(model)
    assert weigh(model).parameters == pytest.approx(parameters, rel=1e-5)


@pytest.mark.parametrize(("name", "parameters", "config"), TOTALS, ids=[row[0] for row in TOTALS])
def test_published_totals(name: str, parameters: int, config: dict[str, Any]) -> None:
    weights = weigh(read(config))
    everything = weights.parameters + weights.mtp.parameters + weights.vision.parameters
    assert everything == pytest.approx(parameters, rel=1e-5)


QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
}
MINISTRAL_8B = {
    "model_type": "mistral3",
    "text_config": {
        "model_type": "ministral3",
        "hidden_size": 4096,
        "num_hidden_layers": 34,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": 131072,
    },
    "vision_config": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}
VISION_AND_HEAD = ["model.vision_tower", "model.multi_modal_projector", "lm_head"]


@pytest.mark.parametrize(
    ("config", "quantization", "size"),
    [
        (QWEN3_8B, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 6_098_853_560),
        ({**QWEN3_8B, "torch_dtype": "float32"}, None, 32_759_863_050),
        (MINISTRAL_8B, {"quant_method": "fp8", "modules_to_not_convert": VISION_AND_HEAD}, 10_415_295_693),
    ],
)
def test_published_bytes(config: dict[str, Any], quantization: dict[str, Any] | None, size: int) -> None:
    model = read({**config, "quantization_config": quantization})
    assert weigh(model).checkpoint_bytes == pytest.approx(size, rel=0.001)


@pytest.mark.parametrize(
    ("layers", "stages", "partition", "bounds"),
    [
        (32, 1, None, ((0, 32),)),
        (32, 2, None, ((0, 16), (16, 32))),
        (61, 2, None, ((0, 31), (31, 61))),
        (61, 3, None, ((0, 20), (20, 41), (41, 61))),
        (62, 4, None, ((0, 15), (15, 31), (31, 47), (47, 62))),
        (63, 4, None, ((0, 16), (16, 32), (32, 48), (48, 63))),
        (7, 7, None, tuple((index, index + 1) for index in range(7))),
        (61, 2, [30, 31], ((0, 30), (30, 61))),
    ],
)
def test_layer_split(
    layers: int, stages: int, partition: list[int] | None, bounds: tuple[tuple[int, int], ...]
) -> None:
    assert split_layers(layers, stages, partition) == bounds


@pytest.mark.parametrize(
    ("layers", "stages", "partition"),
    [(4, 0, None), (4, 5, None), (4, 2, [1, 2]), (4, 2, [4]), (4, 2, [0, 4])],
)
def test_impossible_split(layers: int, stages: int, partition: list[int] | None) -> None:
    with pytest.raises(InputError):
        split_layers(layers, stages, partition)


@given(st.integers(1, 200), st.data())
def test_split_covers_every_layer_once(layers: int, data: st.DataObject) -> None:
    bounds = split_layers(layers, data.draw(st.integers(1, layers)))
    assert bounds[0][0] == 0
    assert bounds[-1][1] == layers
    assert all(end == start for (_first, end), (start, _last) in pairwise(bounds))
    sizes = [end - first for first, end in bounds]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)  # the last stage has the head already


@pytest.mark.parametrize("stages", [1, 2, 3, 8])
def test_stages_add_up(stages: int) -> None:
    model = read(LLAMA)
    assert sum(stage_weights(model, stages)) == pytest.approx(loaded_bytes(model), abs=stages)
    assert loaded_bytes(model) == 2 * weigh(model).parameters


def test_ends_of_a_pipeline() -> None:
    first, middle, last = stage_weights(read({**LLAMA, "num_hidden_layers": 33}), 3)
    table, norm = 2 * 128256 * 4096, 2 * 4096
    assert first - middle == table
    assert last - middle == table + norm


def test_tied_embedding_lies_on_both_ends() -> None:
    model = read(QWEN)
    table = 2 * 151936 * 896
    assert sum(stage_weights(model, 2)) == loaded_bytes(model) + table
    assert stage_weights(model, 1) == (2 * weigh(model).parameters,)


def test_tower_lies_on_the_first_stage() -> None:
    tower = {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
    }
    plain, seeing = read(LLAMA), read({"model_type": "llava", "text_config": LLAMA, "vision_config": tower})
    without, with_tower = stage_weights(plain, 2), stage_weights(seeing, 2)
    assert with_tower[1] == without[1]
    assert with_tower[0] - without[0] == weigh(seeing).vision.plain_bytes > 800e6


def test_partition_wish() -> None:
    model = read(LLAMA)
    even, wished = stage_weights(model, 2), stage_weights(model, 2, partition=[12, 20])
    layer = round(weigh(model).layers[0].bytes)
    assert (even[0] - wished[0], wished[1] - even[1]) == (4 * layer, 4 * layer)


def test_tensor_parallel_splits_but_for_what_is_whole() -> None:
    model = read(LLAMA)
    one, two = stage_weights(model, 1)[0], stage_weights(model, 1, 2)
    assert len(two) == 2
    assert len(set(two)) == 1
    assert two[0] == pytest.approx(one / 2, rel=0.001)
    assert two[0] > one / 2
    assert len(stage_weights(model, 2, 2)) == 4
    with pytest.raises(InputError):
        stage_weights(model, 1, 0)


def test_float32_checkpoint_loads_at_half_its_size() -> None:
    model = read({**LLAMA, "torch_dtype": "float32"})
    assert weigh(model).checkpoint_bytes == 4 * weigh(model).parameters
    assert loaded_bytes(model) == 2 * weigh(model).parameters
    assert loaded_bytes(read({**LLAMA, "torch_dtype": "float32"}, weight_bytes=4 * 8030261248)) == 2 * 8030261248


def test_size_of_the_files_wins() -> None:
    model = read(LLAMA, weight_bytes=16_500_000_000)
    assert loaded_bytes(model) == pytest.approx(16_500_000_000, rel=1e-9)
    assert not weight_findings(model)


def test_files_that_are_something_else_are_said() -> None:
    model = read(LLAMA, weight_bytes=32_000_000_000)
    assert [finding.id for finding in weight_findings(model)] == ["weights-disagree"]
    assert loaded_bytes(model) == pytest.approx(32_000_000_000)


def test_tied_head_in_the_files_is_not_loaded() -> None:
    """Qwen3-0.6B ties its embedding and ships the head all the same."""
    config = {**QWEN, "tie_word_embeddings": True}
    twice = 2 * (weigh(read(config)).parameters + 151936 * 896)
    model = read(config, weight_bytes=twice)
    assert loaded_bytes(model) == 2 * weigh(model).parameters
    assert not weight_findings(model)


def test_prediction_layers_are_not_loaded() -> None:
    config = {**dict(PUBLISHED[15][2]), "model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
    model = read(config)
    weights = weigh(model)
    assert weights.mtp.parameters > 0
    assert weights.checkpoint_bytes > loaded_bytes(model) == 2 * weights.parameters
    assert loaded_bytes(read(config, weight_bytes=weights.checkpoint_bytes)) == loaded_bytes(model)


def test_tensors_decide_where_they_are_named() -> None:
    tensors = {
        "model.embed_tokens.weight": 1000,
        "model.norm.weight": 3,
        "lm_head.weight": 2000,
        "visual.blocks.0.attn.qkv.weight": 70,
        "model.layers.32.mlp.up_proj.weight": 9999,
        "mtp.layers.0.mlp.up_proj.weight": 9999,
    }
    tensors |= {f"model.layers.{index}.mlp.experts.*.up_proj.weight": 10 + index for index in range(32)}
    model = read(LLAMA, tensors=tensors)
    assert stage_weights(model, 2) == (1070 + sum(range(10, 26)), 2003 + sum(range(26, 42)))
    tied = read({**LLAMA, "tie_word_embeddings": True}, tensors=tensors)
    assert stage_weights(tied, 2)[1] == 1003 + sum(range(26, 42))


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("model.embed_tokens.weight", 0),
        ("model.language_model.embed_tokens.weight", 0),
        ("language_model.model.embed_tokens.weight", 0),
        ("transformer.wte.weight", 0),
        ("transformer.embedding.word_embeddings.weight", 0),
        ("backbone.embeddings.weight", 0),
        ("gpt_neox.embed_in.weight", 0),
        ("tok_embeddings.weight", 0),
        ("embed.weight", 0),
        ("model.vision_tower.encoder.layers.31.mlp.fc1.weight", 0),
        ("visual.blocks.31.attn.qkv.weight", 0),
        ("multi_modal_projector.linear_1.weight", 0),
        ("model.layers.0.input_layernorm.weight", 0),
        ("transformer.h.15.attn.c_attn.weight", 0),
        ("transformer.encoder.layers.16.mlp.dense_h_to_4h.weight", 1),
        ("backbone.layers.31.mixer.in_proj.weight", 1),
        ("layers.31.attention.wq.weight", 1),
        ("model.layers.31.mlp.experts.*.gate_proj.weight_packed", 1),
        ("model.norm.weight", 1),
        ("transformer.ln_f.bias", 1),
        ("backbone.norm_f.weight", 1),
        ("transformer.encoder.final_layernorm.weight", 1),
        ("lm_head.weight", 1),
        ("lm_head.qweight", 1),
        ("transformer.output_layer.weight", 1),
        ("output.weight", 1),
        ("head.weight", 1),
        ("embed_out.weight", 1),
        ("mtp.0.attn.wq_a.weight", None),
        ("mtp.layers.0.mlp.up_proj.weight", None),
        ("model.layers.32.eh_proj.weight", None),
    ],
)
def test_names_of_tensors(name: str, stage: int | None) -> None:
    expected = tuple(7 * (index == stage) for index in (0, 1))
    assert stage_weights(read(LLAMA, tensors={name: 7}), 2) == expected


def test_bytes_read_for_a_token() -> None:
    dense = read(LLAMA)
    read_bytes = active_weight_bytes(dense)
    assert (read_bytes.quantized, read_bytes.unquantized) == (0, 2 * (8030261248 - 128256 * 4096))
    quantized = read({**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    split = active_weight_bytes(quantized)
    assert split.quantized == pytest.approx(8030261248 - 2 * 128256 * 4096, rel=0.001)
    assert split.unquantized == pytest.approx(2 * 128256 * 4096, rel=0.001)


def test_experts_a_token_is_not_routed_to_are_not_read() -> None:
    mixture = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    weights = weigh(read(mixture))
    expert = 3 * 4096 * 14336 * 32
    assert weights.parameters - weights.active_parameters == 6 * expert + 128256 * 4096


def truth() -> dict[str, Any]:
    if not shared_facts.has_shared():
        return {}
    return {row["dir"]: row for row in shared_facts.load("models/truth.json")["rows"] if row.get("dir")}


TRUTH = truth()
NO_FACTS = [""]  # the reading of facts then skips, or fails under CI
# The repo holds its weights more than once (original/, metal/), as the facts say themselves.
TWICE = {"openai__gpt-oss-120b"}
# Where the facts' own arithmetic differs without a mark: experts of Kimi-K3 work on a narrower vector (vLLM
# 0.33, models/kimi_k3; the files' total agrees), and most layers of GLM-5.2 have no indexer of their own.
MISCOUNTED = {"moonshotai__Kimi-K3"}
SHARED_INDEXERS = {"nvidia__GLM-5.2-NVFP4", "zai-org__GLM-5.2", "zai-org__GLM-5.2-FP8"}


@pytest.mark.parametrize("name", shared_facts.model_names() or NO_FACTS)
def test_facts_parameters(name: str) -> None:
    """Within 0.1 % of the text model's count, or with towers and prediction layers of the files' total."""
    row = TRUTH.get(name, {})
    weights = weigh(read_checkpoint(shared_facts.model_input(name)))
    computed = row.get("computed_params", {})
    total = row.get("total_params", {})
    if computed.get("text") and "unreliable" not in computed and name not in MISCOUNTED:
        assert weights.parameters == pytest.approx(computed["text"], rel=0.001)
    elif total.get("value") and "PACKED" not in total.get("note", ""):
        everything = weights.parameters + weights.mtp.parameters + weights.vision.parameters
        assert everything == pytest.approx(total["value"], rel=0.01)


@pytest.mark.parametrize("name", shared_facts.model_names() or NO_FACTS)
def test_facts_active_parameters(name: str) -> None:
    model = read_checkpoint(shared_facts.model_input(name))
    active = TRUTH.get(name, {}).get("computed_active_params", {}).get("value")
    if active and name not in MISCOUNTED | SHARED_INDEXERS:
        assert weigh(model).active_parameters == pytest.approx(active, rel=0.001)


@pytest.mark.parametrize("name", shared_facts.model_names() or NO_FACTS)
def test_facts_bytes(name: str) -> None:
    """Within 3 % of the published size, 8 % for 4-bit formats."""
    row = TRUTH.get(name, {})
    model = read_checkpoint(shared_facts.model_input(name))
    if name in TWICE:
        return
    for published in row.get("checkpoint_bytes", []):
        allowed = 0.08 if model.quantization.bits_per_weight < 8 else 0.03
        assert weigh(model).checkpoint_bytes == pytest.approx(published["bytes"], rel=allowed)


@pytest.mark.parametrize("name", shared_facts.model_names() or NO_FACTS)
def test_facts_stages_add_up(name: str) -> None:
    model = read_checkpoint(shared_facts.model_input(name))
    weights = weigh(model)
    again = weights.embedding.bytes if weights.tied else 0
    for stages in (1, 2, 3):
        more = again * (stages > 1) + weights.both.bytes * (stages - 1)
        assert sum(stage_weights(model, stages)) == pytest.approx(weights.loaded_bytes + more, rel=1e-6)
