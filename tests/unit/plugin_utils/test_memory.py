# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The KV cache against vLLM's arithmetic and the log lines of real starts; overhead and budget."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.attention import layer_caches
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import Checkpoint, read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.memory import (
    available_kv_bytes,
    default_prefix_caching,
    kv_bytes_per_token,
    kv_layout,
    load_transient_bytes,
    memory_findings,
    overhead,
    requested_bytes,
    stored_kv_dtype,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import Speculative
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts
from hypothesis import given, settings
from hypothesis import strategies as st

GIB = 1 << 30

LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
FAMILIES: dict[str, dict[str, Any]] = {
    "dense": {},
    "sliding": {"model_type": "gemma3_text", "sliding_window": 512},
    "chunked": {"model_type": "llama4_text", "attention_chunk_size": 2048},
    "latent": {"model_type": "deepseek_v3", **LATENT},
    "sparse": {"model_type": "glm_moe_dsa", "index_topk": 512, **LATENT},
    "delta": {
        "model_type": "qwen3_next",
        "linear_num_value_heads": 16,
        "linear_num_key_heads": 8,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    },
    "mamba": {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M-M*-MM-",
        "mamba_num_heads": 16,
        "mamba_head_dim": 64,
        "n_groups": 4,
        "ssm_state_size": 64,
        "conv_kernel": 4,
    },
}


def checkpoint(**config: Any) -> Checkpoint:
    return read_checkpoint({"id": "test/model", "config": {**DENSE, **config}})


def published(name: str, **changes: Any) -> Checkpoint:
    model = shared_facts.model_input(name)
    config = dict(model["config"])
    if isinstance(config.get("text_config"), dict):
        config["text_config"] = {**config["text_config"], **changes}
    else:
        config.update(changes)
    return read_checkpoint({**model, "config": config})


# --- bytes of a token ---


def test_bytes_of_a_token() -> None:
    assert kv_bytes_per_token(checkpoint()) == 8 * 4 * 128 * 2
    assert kv_bytes_per_token(checkpoint(), "fp8") == 8 * 4 * 128
    assert kv_bytes_per_token(checkpoint(torch_dtype="float32")) == 8 * 4 * 128 * 2
    assert kv_bytes_per_token(checkpoint(), tensor=8) == 2 * 8 * 4 * 128 * 2  # 4 heads on 8 ranks: two copies
    assert kv_bytes_per_token(checkpoint(**FAMILIES["latent"])) == 8 * 576 * 2
    assert kv_bytes_per_token(checkpoint(**FAMILIES["sparse"])) == 8 * (576 * 2 + 132)
    assert kv_bytes_per_token(checkpoint(**FAMILIES["sparse"]), "fp8") == 8 * (656 + 132)
    assert kv_bytes_per_token(checkpoint(**FAMILIES["sliding"])) == 1 * 4 * 128 * 2


# Published or worked out by hand; where planners of the day go wrong, the trap is named.
TRAPS = [
    ("openai__gpt-oss-120b", 36864, "window applied to the full layers"),
    ("google__gemma-3-27b-it", 81920, "every layer read as sliding"),
    ("LGAI-EXAONE__EXAONE-4.0-32B", 65536, "window applied to the full layers"),
    ("nvidia__Gemma-4-26B-A4B-NVFP4", 20480, "one head geometry for both kinds"),
    ("_trimmed/ibm-granite__granite-4.0-h-tiny", 8192, "'attention' instead of 'full_attention'"),
    ("deepseek-ai__deepseek-vl2-tiny", 61440, "latent keys present but unused"),
    ("deepseek-ai__DeepSeek-V3.2", 61 * (1152 + 132), "the index of sparse attention left out"),
    ("zai-org__GLM-5.2", 78 * 1152 + 21 * 132, "an index on every layer"),
    ("THUDM__glm-4-9b-chat", 40960, "multi_query_group_num"),
    ("Qwen__Qwen3-Next-80B-A3B-Instruct", 24576, "full_attention_interval without layer_types"),
    ("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6144, "every layer counted as attention"),
    ("_derived/ai21labs__Jamba-v0.1", 16384, "every layer counted as attention"),
    ("meta-llama__Llama-4-Scout-17B-16E-Instruct", 49152, "chunked layers counted as growing"),
    ("allenai__OLMo-2-0325-32B", 262144, "float32 checkpoint read as a 4-byte cache"),
    ("nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 12288, "layers_block_type without num_hidden_layers"),
    ("moonshotai__Kimi-Linear-48B-A3B-Instruct", 8064, "heads in the config of a latent model"),
    ("meta-llama__Llama-3.2-90B-Vision-Instruct", 327680, "cross-attention layers counted"),
    ("MiniMaxAI__MiniMax-M2.7", 253952, "custom code refused"),
    ("XiaomiMiMo__MiMo-V2-Flash", 9 * 4 * (192 + 128) * 2, "values as wide as keys"),
]


@pytest.mark.parametrize(("name", "expected", "trap"), TRAPS, ids=[row[0] for row in TRAPS])
def test_traps(name: str, expected: int, trap: str) -> None:
    assert kv_bytes_per_token(published(name)) == expected, trap


def test_published_figures() -> None:
    compared = 0
    for row in shared_facts.load("models/truth.json")["rows"]:
        truth = row.get("kv") or {}
        expected = truth.get("bytes_per_token_2byte_full_layers")
        if expected is None or "note" in truth or row.get("dir") not in shared_facts.model_names():
            continue
        model = published(row["dir"])
        index = sum(132 for cache in layer_caches(model) if cache.kind == "indexer" and not cache.draft)
        assert kv_bytes_per_token(model) == expected + index, row["model"]
        compared += 1
    assert compared > 70


# --- vLLM's arithmetic ---


def test_worked_out_vectors() -> None:
    compared = 0
    for name, vector in shared_facts.load("facts/vllm-kv-vectors.json").items():
        if name.startswith("_"):
            continue
        folder, *rest = name.split("|")
        options = dict(item.split("=") for item in rest)
        model = published(folder)
        context = int(options["len"])
        layout = kv_layout(
            model,
            pipeline=int(options["pp"]),
            kv_cache_dtype=options["kv"],
            max_num_batched_tokens=int(options["mnbt"]),
            prefix_caching=False,
        )
        assert layout.block_tokens == vector["block"], name
        assert layout.blocks_per_request(context) == vector["blocks_per_request"], name
        assert list(layout.bytes_per_block) == vector["bytes_per_block_per_rank"], name
        assert list(layout.request_bytes(context)) == vector["bytes_per_request_per_rank"], name
        assert sorted(len(group.layers) for group in layout.groups) == sorted(size for _kind, size in vector["groups"])
        assert kv_bytes_per_token(model, options["kv"]) == sum(vector["full_attn_bytes_per_token_per_rank"]), name
        compared += 1
    assert compared >= 32


def test_measured_starts_of_vllm_0_26() -> None:
    for row in shared_facts.load("models/measured-boots.json")["rows"]:
        override = row["num_hidden_layers_override"]
        model = published(row["dir"], **({"num_hidden_layers": override} if override else {}))
        layout = kv_layout(
            model,
            kv_cache_dtype=row["kv_cache_dtype"],
            max_num_batched_tokens=row["max_num_batched_tokens"],
            prefix_caching=row["prefix_caching"],
            vllm_version=row["vllm"],
        )
        available = [round(row["available_kv_gib"] * GIB)]
        context = row["max_model_len"]
        assert layout.concurrency(available, context) == pytest.approx(row["max_concurrency"], rel=0.001), row["name"]
        assert layout.kv_tokens(available, context) == pytest.approx(row["kv_cache_tokens"], rel=0.001), row["name"]
        if row["attention_block_size"]:
            assert layout.block_tokens == row["attention_block_size"]


QWEN35, QWEN27 = "Qwen__Qwen3.5-35B-A3B", "Qwen__Qwen3.5-27B"
GEMMA = "nvidia__Gemma-4-26B-A4B-NVFP4"
SUPER = "nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-FP8"
MTP, DFLASH = Speculative("mtp", 3), Speculative("dflash", 15)
# Published log lines: GiB a rank, context, settings, version, printed concurrency and tokens, tolerance.
LOGS: list[tuple[str, float, int, dict[str, Any], str, float | None, int | None, float]] = [
    (SUPER, 36.25, 131072, {"kv_cache_dtype": "fp8", "speculative": MTP}, "0.19.2", 27.81, 1399712, 0.001),
    (QWEN35, 47.55, 131072, {"prefix_caching": False}, "0.19.2", 18.44, 623040, 0.001),
    (
        GEMMA,
        44.03,
        8192,
        {"kv_cache_dtype": "bfloat16", "max_num_batched_tokens": 4096},
        "0.19.2",
        38.76,
        192368,
        0.001,
    ),
    (
        GEMMA,
        65.25,
        262144,
        {"kv_cache_dtype": "bfloat16", "max_num_batched_tokens": 32768, "speculative": DFLASH},
        "0.20.1",
        1.98,
        519920,
        0.05,
    ),
    (QWEN35, 63.23, 262144, {"prefix_caching": True, "speculative": DFLASH}, "0.22.0", 4.77, 1251446, 0.002),
    (QWEN35, 62.74, 262144, {"prefix_caching": True, "speculative": DFLASH}, "0.22.0", 4.74, 1241920, 0.002),
    (
        QWEN35,
        88.76,
        32768,
        {"prefix_caching": True, "tensor": 2, "kv_cache_dtype": "fp8"},
        "0.28.0",
        403,
        13_200_000,
        0.003,
    ),
    # The same boot with multi-token prediction prints 3.8; to the token it is the one without.
    (
        QWEN27,
        35.45,
        262144,
        {"prefix_caching": True, "kv_cache_dtype": "fp8"},
        "0.27.0",
        4.25,
        1114865,
        0.002,
    ),
    (
        QWEN27,
        46.98,
        262144,
        {"prefix_caching": True, "kv_cache_dtype": "fp8", "speculative": MTP},
        "0.27.0",
        5.06,
        1325364,
        0.002,
    ),
    (
        QWEN27,
        66.74,
        262144,
        {"prefix_caching": True, "kv_cache_dtype": "fp8", "speculative": MTP},
        "0.27.0",
        7.18,
        1883336,
        0.002,
    ),
    ("meta-llama__Meta-Llama-3.1-8B", 3.81, 20000, {}, "0.19.0", 1.56, 31232, 0.002),
    (
        QWEN27,
        4.99,
        131072,
        {"prefix_caching": True, "tensor": 2, "kv_cache_dtype": "fp8"},
        "0.28.0",
        2.31,
        302921,
        0.001,
    ),
    (QWEN35, 5.98, 131072, {"prefix_caching": True, "kv_cache_dtype": "fp8"}, "0.28.0", 4.33, 567978, 0.001),
    (QWEN35, 6.01, 131072, {"prefix_caching": True, "kv_cache_dtype": "fp8"}, "0.28.0", None, 569878, 0.001),
]


@pytest.mark.parametrize(
    ("name", "gib", "context", "options", "version", "concurrency", "tokens", "tolerance"),
    LOGS,
    ids=[f"{row[0].split('__')[-1]}-{row[1]}" for row in LOGS],
)
def test_log_lines_of_real_starts(
    name: str,
    gib: float,
    context: int,
    options: dict[str, Any],
    version: str,
    concurrency: float | None,
    tokens: int | None,
    tolerance: float,
) -> None:
    layout = kv_layout(published(name), vllm_version=version, **options)
    available = [round(gib * GIB)] * len(layout.bytes_per_block)
    if concurrency is not None:
        assert layout.concurrency(available, context) == pytest.approx(concurrency, rel=tolerance)
    if tokens is not None:
        assert layout.kv_tokens(available, context) == pytest.approx(tokens, rel=tolerance)


def test_a_refused_start_and_the_context_vllm_offered_instead() -> None:
    layout = kv_layout(published("MiniMaxAI__MiniMax-M2.7"), tensor=2, vllm_version="0.29.1")
    available = [round(22.5 * GIB)] * 2
    assert layout.request_bytes(196608)[0] / GIB == pytest.approx(23.25, abs=0.001)
    assert not layout.fits(available, 196608)
    assert layout.largest_context(available, 196608) == pytest.approx(190272, rel=0.0005)


def test_block_sizes_that_logs_name() -> None:
    assert (
        kv_layout(published(SUPER), kv_cache_dtype="fp8", speculative=MTP, vllm_version="0.19.2").block_tokens == 8432
    )
    assert kv_layout(published(QWEN35), vllm_version="0.19.2").block_tokens == 1056
    assert kv_layout(published(QWEN35), kv_cache_dtype="fp8", vllm_version="0.26.0").block_tokens == 2096
    assert kv_layout(published(QWEN27), tensor=2, kv_cache_dtype="fp8", vllm_version="0.26.0").block_tokens == 1568
    nano = published("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    assert kv_layout(nano, kv_cache_dtype="fp8", prefix_caching=False, vllm_version="0.26.0").block_tokens == 4176


# --- versions and settings ---


def test_versions_differ_in_the_tokens_in_flight() -> None:
    model = checkpoint(**FAMILIES["sliding"])
    blocks = {
        version: kv_layout(model, max_num_batched_tokens=2048, vllm_version=version).group_blocks(131072)[0]
        for version in ("0.25.1", "0.26.0")
    }
    assert blocks == {"0.25.1": (511 + 2048 + 15) // 16 + 1, "0.26.0": (511 + 4096 + 15) // 16 + 1}
    piped = kv_layout(model, pipeline=2, max_num_batched_tokens=2048, vllm_version="0.26.0")
    assert piped.group_blocks(131072)[0] == (511 + 3 * 2048 + 15) // 16 + 1


def test_prefix_caching_of_hybrids_came_with_0_28() -> None:
    hybrid = checkpoint(**FAMILIES["delta"])
    assert default_prefix_caching(checkpoint(), "0.19.0")
    assert [default_prefix_caching(hybrid, version) for version in ("0.27.0", "0.28.0")] == [False, True]


def test_states_cost_more_with_prefix_caching_and_drafts() -> None:
    model = checkpoint(**FAMILIES["delta"])

    def states(**options: Any) -> int:
        layout = kv_layout(model, vllm_version="0.28.0", **options)
        return sum(
            count for group, count in zip(layout.groups, layout.group_blocks(4096), strict=True) if group.is_state
        )

    assert states(prefix_caching=False) < states(prefix_caching=True)
    assert states(prefix_caching=True) < states(prefix_caching=True, speculative=Speculative("mtp", 2))


def test_a_draft_is_one_more_layer_on_the_last_stage() -> None:
    model = checkpoint(num_nextn_predict_layers=1)
    plain = kv_layout(model, pipeline=2)
    drafted = kv_layout(model, pipeline=2, speculative=Speculative("mtp", 1))
    assert drafted.bytes_per_block[0] == plain.bytes_per_block[0]
    assert drafted.bytes_per_block[1] == plain.bytes_per_block[1] * 5 // 4


def test_ngram_needs_no_cache() -> None:
    assert (
        kv_layout(checkpoint(), speculative=Speculative("ngram", 4)).bytes_per_block
        == kv_layout(checkpoint()).bytes_per_block
    )


def test_formats_the_model_decides() -> None:
    assert stored_kv_dtype(checkpoint(), "auto") == "auto"
    assert stored_kv_dtype(checkpoint(**FAMILIES["sparse"]), "fp8") == "fp8_ds_mla"
    assert stored_kv_dtype(checkpoint(**FAMILIES["latent"]), "fp8") == "fp8"
    ids = [finding.id for finding in memory_findings(checkpoint(**FAMILIES["sparse"]))]
    assert ids == ["sparse-kv-dtype-on-sm12"]


def test_compressed_rows_of_deepseek_v4() -> None:
    model = published("deepseek-ai__DeepSeek-V4-Flash")
    # 21 layers keep every 4th token (584 bytes, padded to 576s, and an index of 132), 20 every 128th.
    assert kv_bytes_per_token(model, "fp8") == (21 * (37440 + 8640) + 20 * 1728) // 256
    for version in ("0.26.0", "0.33.0"):
        layout = kv_layout(model, kv_cache_dtype="fp8", vllm_version=version)
        assert layout.block_tokens == 256
        assert layout.request_bytes(1_048_576) > layout.request_bytes(524_288)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_more_context_never_needs_less(family: str, data: st.DataObject) -> None:
    layout = kv_layout(
        checkpoint(**FAMILIES[family]),
        pipeline=data.draw(st.integers(1, 4)),
        tensor=data.draw(st.sampled_from([1, 2])),
        kv_cache_dtype=data.draw(st.sampled_from(["auto", "fp8"])),
        max_num_batched_tokens=data.draw(st.sampled_from([512, 2048, 8192])),
        prefix_caching=data.draw(st.booleans()),
        vllm_version=data.draw(st.sampled_from(["0.19.0", "0.25.1", "0.26.0", "0.29.0", "0.33.0"])),
    )
    short = data.draw(st.integers(1, 100_000))
    long = data.draw(st.integers(short, 200_000))
    assert all(a <= b for a, b in zip(layout.request_bytes(short), layout.request_bytes(long), strict=True))
    available = [data.draw(st.integers(0, 4 * GIB))] * len(layout.bytes_per_block)
    assert layout.concurrency(available, long) <= layout.concurrency(available, short)


@pytest.mark.parametrize("family", ["dense", "latent", "sparse"])
@given(st.integers(1, 8))
@settings(max_examples=8, deadline=None)
def test_stages_add_up_to_the_whole(family: str, stages: int) -> None:
    model = checkpoint(**FAMILIES[family])
    whole = kv_layout(model).bytes_per_block[0]
    assert sum(kv_layout(model, pipeline=stages).bytes_per_block) == whole


# --- overhead and budget ---


def test_activations_against_profiles_of_real_starts() -> None:
    for row in shared_facts.load("models/measured-boots.json")["rows"]:
        override = row["num_hidden_layers_override"]
        model = published(row["dir"], **({"num_hidden_layers": override} if override else {}))
        (rank,) = overhead(
            model,
            max_num_batched_tokens=row["max_num_batched_tokens"],
            max_num_seqs=row["max_num_seqs"],
            context=row["max_model_len"],
            enforce_eager=row["enforce_eager"],
        )
        assert 0.75 <= rank.activation_bytes / GIB / row["peak_activation_gib"] <= 1.9, row["name"]


def test_overhead_by_stage() -> None:
    draft = Speculative("eagle3", 3, draft_weight_bytes=GIB)
    first, last = overhead(checkpoint(), pipeline=2, speculative=draft)
    assert (first.draft_bytes, last.draft_bytes) == (0, GIB)
    assert first.collective_bytes == last.collective_bytes > 0
    assert last.activation_bytes > first.activation_bytes  # logits
    assert overhead(checkpoint(), enforce_eager=True)[0].graph_bytes == 0
    assert overhead(checkpoint())[0].collective_bytes == 0
    assert overhead(checkpoint(), max_num_batched_tokens=65536)[0].total_bytes > overhead(checkpoint())[0].total_bytes


def test_budget() -> None:
    total = round(121.69 * GIB)
    assert requested_bytes(total, 0.85) == pytest.approx(0.85 * total, abs=1)
    assert available_kv_bytes(total, 0.85, 60 * GIB, 3 * GIB) == requested_bytes(total, 0.85) - 63 * GIB
    assert available_kv_bytes(total, 0.85, 60 * GIB, 3 * GIB, 8 * GIB) == 8 * GIB
    assert 3 * GIB <= load_transient_bytes(GIB) < load_transient_bytes(100 * GIB) <= 8 * GIB
