# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which caches the layers of a model keep, by the keys of its config."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.attention import (
    State,
    attention_findings,
    attention_kinds,
    growing_caches,
    layer_caches,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import Checkpoint, read_checkpoint

BASE = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}


def checkpoint(model_type: str, architecture: str = "LlamaForCausalLM", **config: Any) -> Checkpoint:
    merged = {**BASE, "architectures": [architecture], "model_type": model_type, **config}
    return read_checkpoint({"id": "test/model", "config": {k: v for k, v in merged.items() if v is not None}})


def counts(model: Checkpoint) -> dict[str, int]:
    return dict(Counter(str(cache.kind) for cache in layer_caches(model) if not cache.draft))


@pytest.mark.parametrize(
    ("model_type", "config", "expected"),
    [
        ("llama", {}, {"full": 8}),
        ("mistral", {"sliding_window": 4096}, {"sliding": 8}),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, {"full": 8}),
        ("qwen3", {}, {"full": 8}),
        ("qwen2", {"sliding_window": 4096}, {"full": 8}),
        (
            "qwen2",
            {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 6},
            {"full": 6, "sliding": 2},
        ),
        ("mistral", {}, {"sliding": 8}),
        ("gpt_oss", {"sliding_window": 128}, {"sliding": 4, "full": 4}),
        ("gemma3_text", {"sliding_window": 512}, {"sliding": 7, "full": 1}),
        ("gemma3n_text", {"num_hidden_layers": 10, "num_kv_shared_layers": 4}, {"sliding": 5, "full": 1}),
        ("cohere2", {"sliding_window": 512}, {"sliding": 6, "full": 2}),
        ("exaone4", {"sliding_window": 512, "sliding_window_pattern": "LLLG"}, {"sliding": 6, "full": 2}),
        ("llama4_text", {"attention_chunk_size": 8192}, {"chunked": 6, "full": 2}),
        (
            "qwen3_next",
            {"full_attention_interval": 4, "linear_num_value_heads": 8},
            {"gdn": 6, "full": 2},
        ),
        ("jamba", {"mamba_d_state": 16, "mamba_expand": 2}, {"mamba1": 7, "full": 1}),
        (
            "nemotron_h",
            {"hybrid_override_pattern": "M-M*-MEM", "mamba_num_heads": 8},
            {"mamba2": 4, "full": 1},
        ),
        (
            "nemotron_h",
            {
                "layers_block_type": ["mamba", "moe", "attention", "mlp", "mamba", "moe", "mamba", "moe"],
                "mamba_num_heads": 8,
            },
            {"mamba2": 3, "full": 1},
        ),
        (
            "granitemoehybrid",
            {"layer_types": ["mamba"] * 7 + ["attention"], "mamba_n_heads": 8},
            {"mamba2": 7, "full": 1},
        ),
        (
            "granitemoehybrid",  # as newer files write it
            {"layer_types": ["linear_attention"] * 7 + ["full_attention"], "mamba_n_heads": 8},
            {"mamba2": 7, "full": 1},
        ),
        ("bamba", {"attn_layer_indices": [3], "mamba_n_heads": 8}, {"mamba2": 7, "full": 1}),
        ("falcon_h1", {"mamba_n_heads": 8}, {"mamba2": 8, "full": 8}),
        ("falcon_mamba", {"num_attention_heads": None, "num_key_value_heads": None}, {"mamba1": 8}),
        ("lfm2", {"full_attn_idxs": [2, 5], "conv_L_cache": 3}, {"shortconv": 6, "full": 2}),
        (
            "kimi_linear",
            {
                "linear_attn_config": {"full_attn_layers": [4, 8], "num_heads": 4, "head_dim": 128},
                "kv_lora_rank": 512,
                "qk_rope_head_dim": 64,
            },
            {"kda": 6, "mla": 2},
        ),
        ("deepseek_v3", {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, {"mla": 8}),
        ("deepseek_v2", {"kv_lora_rank": None, "use_mla": False}, {"full": 8}),
        ("longcat_flash", {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, {"mla": 16}),
        (
            "glm_moe_dsa",
            {
                "kv_lora_rank": 512,
                "qk_rope_head_dim": 64,
                "index_topk": 2048,
                "index_topk_freq": 4,
                "index_skip_topk_offset": 3,
            },
            {"mla": 8, "indexer": 4},
        ),
        ("mllama_text_model", {"cross_attention_layers": [3, 7]}, {"full": 6}),
        (
            "mimo_v2_flash",
            {"hybrid_layer_pattern": [0, 1, 1, 1] * 2, "sliding_window": 128},
            {"full": 2, "sliding": 6},
        ),
        (
            "afmoe",
            {"layer_types": ["sliding_attention"] * 6 + ["full_attention"] * 2, "sliding_window": 64},
            {"sliding": 6, "full": 2},
        ),
    ],
)
def test_kinds_of_layers(model_type: str, config: dict[str, Any], expected: dict[str, int]) -> None:
    assert counts(checkpoint(model_type, **config)) == expected


def test_two_head_geometries() -> None:
    model = checkpoint(
        "gemma4_text",
        num_hidden_layers=6,
        layer_types=["sliding_attention"] * 5 + ["full_attention"],
        sliding_window=1024,
        head_dim=256,
        num_key_value_heads=8,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
    )
    geometries = {(cache.kind, cache.kv_heads, cache.head_dim) for cache in layer_caches(model)}
    assert geometries == {("sliding", 8, 256), ("full", 2, 512)}


def test_geometry_of_single_layers_as_newer_files_write_it() -> None:
    model = checkpoint(
        "gemma4_text",
        num_hidden_layers=12,
        sliding_window=512,
        head_dim=256,
        per_layer_config={"05": {"head_dim": 512}, "11": {"head_dim": 512, "num_key_value_heads": 2}},
    )
    full = [(c.layer, c.kv_heads, c.head_dim, c.head_dim_v) for c in layer_caches(model) if c.kind == "full"]
    assert full == [(5, 4, 512, 512), (11, 2, 512, 512)]


def test_keys_wider_than_values() -> None:
    model = checkpoint(
        "mimo_v2_flash",
        hybrid_layer_pattern=[0] + [1] * 7,
        head_dim=192,
        v_head_dim=128,
        swa_head_dim=192,
        swa_v_head_dim=128,
        swa_num_key_value_heads=8,
        sliding_window=128,
    )
    assert {(c.kind, c.kv_heads, c.head_dim, c.head_dim_v) for c in layer_caches(model)} == {
        ("full", 4, 192, 128),
        ("sliding", 8, 192, 128),
    }


def test_heads_per_block() -> None:
    blocks = [{"attention": {"no_op": True}}] + [{"attention": {"n_heads_in_group": 8}}] * 7
    model = checkpoint("nemotron-nas", block_configs=blocks)
    assert {(cache.layer, cache.kv_heads) for cache in layer_caches(model)} == {(i, 2) for i in range(1, 8)}


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"num_key_value_heads": None, "multi_query_attention": True, "multi_query_group_num": 2}, 2),
        ({"num_key_value_heads": None}, 16),
    ],
)
def test_names_of_kv_heads(config: dict[str, Any], kv_heads: int) -> None:
    assert {cache.kv_heads for cache in layer_caches(checkpoint("chatglm", **config))} == {kv_heads}


def test_latent_attention_wins_over_heads_in_the_config() -> None:
    model = checkpoint("glm4_moe_lite", head_dim=64, kv_lora_rank=512, qk_rope_head_dim=64)
    assert {(cache.kind, cache.head_dim) for cache in layer_caches(model)} == {("mla", 576)}


def test_multi_token_prediction_layers_are_drafts() -> None:
    model = checkpoint("deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64, num_nextn_predict_layers=1)
    drafts = [cache for cache in layer_caches(model) if cache.draft]
    assert [(cache.layer, cache.kind) for cache in drafts] == [(8, "mla")]


def test_a_window_as_long_as_the_model_grows() -> None:
    assert len(growing_caches(checkpoint("phimoe", sliding_window=32768))) == 8
    assert growing_caches(checkpoint("mistral", sliding_window=4096)) == ()


def test_state_is_divided_by_ranks_and_copied_where_groups_do_not_divide() -> None:
    state = State(width=4096 + 2 * 1 * 128, rows=3, grows=True, groups=1, group_width=256)
    assert state.elements(1, 0) == (4096 + 256) * 3
    assert state.elements(2, 0) == (4096 + 512) // 2 * 3
    assert state.elements(1, 2) == (4096 + 256) * 5


def test_a_model_of_states_alone_has_heads_of_its_own() -> None:
    own = {"num_heads": 32, "head_dim": 64, "state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2}
    model = checkpoint("mamba2", num_attention_heads=None, num_key_value_heads=None, **own)
    convolution, recurrent = layer_caches(model)[0].states
    assert convolution.elements(1, 0) == (32 * 64 + 2 * 8 * 128) * 3
    assert recurrent.elements(1, 0) == 32 * 64 * 128


def test_attention_kinds_name_full_attention_by_its_heads() -> None:
    assert attention_kinds(checkpoint("llama")) == ["gqa"]
    assert attention_kinds(checkpoint("llama", num_key_value_heads=16)) == ["mha"]
    assert attention_kinds(checkpoint("llama", num_key_value_heads=1)) == ["mqa"]
    assert attention_kinds(checkpoint("gemma3_text", sliding_window=512)) == ["sliding", "gqa"]


def test_what_is_not_worked_out_is_said() -> None:
    assert attention_findings(checkpoint("llama")) == ()
    assert [f.id for f in attention_findings(checkpoint("minimax_m3"))] == ["kv-cache-not-modelled"]
    assert [f.id for f in attention_findings(checkpoint("brand_new", kv_lora_rank=512))] == ["latent-attention-unsure"]
    strange = checkpoint("brand_new", layer_types=["full_attention"] * 7 + ["holographic_attention"])
    assert [f.id for f in attention_findings(strange)] == ["layer-kind-unknown"]


def test_compressed_layers_as_two_generations_of_files_write_them() -> None:
    own = {"head_dim": 512, "sliding_window": 128, "num_key_value_heads": 1, "num_nextn_predict_layers": 0}
    ratios = [0, 4, 128, 4, 128, 4, 128, 4]
    words = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    older = checkpoint("deepseek_v4", compress_ratios=ratios, **own)
    newer = checkpoint(
        "deepseek_v4",
        compress_rates={words[4]: 4, words[128]: 128},
        layer_types=[words[ratio] for ratio in ratios],
        **own,
    )
    assert counts(older) == counts(newer) == {"sliding-mla": 8 + 4 + 4 + 3, "mla": 7, "indexer": 4}
