# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command line as a whole: its figures, its reasons, its findings."""

from __future__ import annotations

import json

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError, read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.engine import (
    check_layout,
    engine_settings,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.images import choose_image
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.placement import Node, Placement
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.remote_code import remote_code
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.serving import serve_spec
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import read_wishes
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 40960,
}
PAIR = (
    Node("a", 1 << 37, fabric_address="192.168.100.1", fabric_interface="enp1s0f0np0"),
    Node("b", 1 << 37, fabric_address="192.168.100.2", fabric_interface="enp1s0f0np0"),
)


def model(name="Qwen/Qwen3-8B", architecture="Qwen3ForCausalLM", model_type="qwen3", files=None, **config):
    return read_checkpoint(
        {
            "id": name,
            "files": files or [],
            "config": {"architectures": [architecture], "model_type": model_type, **SIZES, **config},
        }
    )


def gpt_oss():
    return model(
        "openai/gpt-oss-20b",
        "GptOssForCausalLM",
        "gpt_oss",
        num_local_experts=32,
        num_experts_per_tok=4,
        quantization_config={"quant_method": "mxfp4"},
    )


def nvfp4(experts=128):
    return model(
        "nvidia/Qwen3-30B-A3B-NVFP4",
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        num_experts=experts,
        num_experts_per_tok=8,
        moe_intermediate_size=64,
        quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"},
    )


def spec(checkpoint=None, kind="single", launcher="mp", nodes=PAIR, parser_files=None, **wished):
    checkpoint, wishes = checkpoint or model(), read_wishes(**wished)
    image = choose_image(checkpoint, wishes)
    engine = engine_settings(checkpoint, wishes, image)
    nodes = nodes[:1] if kind == "single" else nodes
    placement = Placement(
        kind,
        tuple(node.name for node in nodes),
        len(nodes) if kind == "pipeline" else 1,
        len(nodes) if kind == "tensor" else 1,
        launcher,
        "the reason",
    )
    return serve_spec(checkpoint, wishes, image, engine, placement, nodes, 0.85, "the share", parser_files)


def value(found, flag):
    return found.args[found.args.index(flag) + 1] if flag in found.args else None


def ids(found):
    return [finding.id for finding in found.findings]


def test_the_launch_template_is_the_default():
    found = spec()
    assert found.image == "vllm/vllm-openai:v0.33.0"
    assert {
        flag: value(found, flag)
        for flag in (
            "--max-model-len",
            "--gpu-memory-utilization",
            "--max-num-seqs",
            "--max-num-batched-tokens",
            "--reasoning-parser",
            "--tool-call-parser",
        )
    } == {
        "--max-model-len": "32768",
        "--gpu-memory-utilization": "0.85",
        "--max-num-seqs": "4",
        "--max-num-batched-tokens": "8192",
        "--reasoning-parser": "qwen3",
        "--tool-call-parser": "hermes",
    }
    assert "--trust-remote-code" not in found.args
    assert found.node_args == {"a": ()}
    assert ids(found) == ["reasoning-budget"]


@pytest.mark.parametrize("kind", ["single", "pipeline", "tensor"])
@pytest.mark.parametrize("launcher", ["ray", "mp"])
@pytest.mark.parametrize("at", ["0.19.0", "0.25.1", "0.33.0"])
def test_every_flag_and_variable_has_its_reason(kind, launcher, at):
    wished = {"extra_args": "--enforce-eager", "prefix_caching": False}
    found = spec(kind=kind, launcher=launcher, vllm_version=at, **wished)
    words = [*found.args, *(word for own in found.node_args.values() for word in own)]
    names = {word for word in words if word.startswith("--")}
    names |= set(found.env_common) | {name for own in found.env_nodes.values() for name in own}
    assert names <= set(found.reasons)
    assert all(found.reasons.values())
    json.dumps(found.as_dict())


@pytest.mark.parametrize(
    ("native", "wished", "context", "findings"),
    [
        (40960, {}, 32768, ()),
        (8192, {}, 8192, ()),
        (8192, {"context": 4096}, 4096, ()),
        (40960, {"context": 40960}, 40960, ()),
        (
            40960,
            {"context": 131072, "extra_args": ["--hf-overrides", '{"rope_parameters": {"factor": 4}}']},
            131072,
            ("context-beyond-native",),
        ),
        (
            40960,
            {"context": 65536, "extra_env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": 1}},
            65536,
            ("context-beyond-native",),
        ),
    ],
)
def test_the_context(native, wished, context, findings):
    found = spec(model(max_position_embeddings=native), **wished)
    assert value(found, "--max-model-len") == str(context)
    assert tuple(name for name in ids(found) if "native" in name) == findings


def test_a_context_beyond_the_native_one_is_refused():
    with pytest.raises(InputError, match="at most 40960") as caught:
        spec(context=65536)
    assert caught.value.field == "context"


@pytest.mark.parametrize(
    ("wished", "seqs", "batched"),
    [
        ({}, "4", "8192"),
        ({"concurrency": 2}, "4", "8192"),
        ({"concurrency": 16}, "16", "8192"),
        ({"max_num_seqs": 2}, "2", "8192"),
        ({"max_num_batched_tokens": 2048}, "4", "2048"),
        ({"max_num_seqs": 10000}, "10000", "10000"),
    ],
)
def test_sequences_and_batched_tokens(wished, seqs, batched):
    found = spec(**wished)
    assert (value(found, "--max-num-seqs"), value(found, "--max-num-batched-tokens")) == (seqs, batched)


def test_wishes_write_their_flags():
    found = spec(
        served_model_name="qwen",
        api_port=8001,
        kv_cache_dtype="fp8",
        kv_cache_memory_bytes=1 << 30,
        prefix_caching=False,
        speculative={"method": "eagle3", "num_tokens": 2, "model": "a/draft"},
        reasoning_parser="deepseek_r1",
        tool_call_parser="none",
        extra_args="--enforce-eager --seed 1",
    )
    assert value(found, "--served-model-name") == "qwen"
    assert value(found, "--port") == "8001"
    assert value(found, "--kv-cache-dtype") == "fp8"
    assert value(found, "--kv-cache-memory-bytes") == str(1 << 30)
    assert json.loads(value(found, "--speculative-config")) == {
        "method": "eagle3",
        "num_speculative_tokens": 2,
        "model": "a/draft",
    }
    assert value(found, "--reasoning-parser") == "deepseek_r1"
    assert {"--no-enable-prefix-caching", "--enforce-eager"} <= set(found.args)
    assert not {"--tool-call-parser", "--enable-auto-tool-choice"} & set(found.args)
    assert found.args[-3:] == ("--enforce-eager", "--seed", "1")


def test_a_draft_that_is_not_named_is_said():
    assert "draft-model-not-named" in ids(spec(speculative={"method": "eagle3", "num_tokens": 2}))
    assert "draft-model-not-named" not in ids(spec(speculative={"method": "mtp", "num_tokens": 2}))


def test_a_path_is_served_under_its_name():
    assert value(spec(model("/srv/models/Qwen3-8B")), "--served-model-name") == "Qwen3-8B"


# --- Several nodes


def test_mp_tells_each_node_its_place():
    found = spec(kind="pipeline")
    assert value(found, "--pipeline-parallel-size") == "2"
    assert value(found, "--nnodes") == "2"
    assert found.node_args == {
        "a": ("--node-rank", "0", "--master-addr", "192.168.100.1"),
        "b": ("--node-rank", "1", "--master-addr", "192.168.100.1", "--headless"),
    }
    assert found.layers == ()


def test_an_unknown_fabric_is_said():
    plain = (Node("a", 1 << 37), Node("b", 1 << 37))
    found = spec(kind="pipeline", nodes=plain)
    assert found.node_args == {"a": ("--node-rank", "0"), "b": ("--node-rank", "1", "--headless")}
    assert "fabric-addresses-unknown" in ids(found)
    assert "fabric-addresses-unknown" not in ids(spec(kind="pipeline"))
    assert "fabric-addresses-unknown" not in ids(spec(nodes=plain))


def test_ray_is_added_to_the_image_since_018():
    found = spec(kind="pipeline", launcher="ray")
    assert value(found, "--distributed-executor-backend") == "ray"
    assert (found.layers, found.layer_requirements) == (("ray",), {"ray": "ray==2.56.1"})
    assert found.node_args == {"a": (), "b": ()}
    assert spec(kind="pipeline", launcher="ray", vllm_version="0.17.0").layers == ()
    assert spec(launcher="ray").layers == ()
    elsewhere = spec(kind="pipeline", launcher="ray", image="ghcr.io/x/y:1", vllm_version="0.33.0")
    assert elsewhere.layers == ()
    assert "ray-in-image-unknown" in ids(elsewhere)


def test_mp_needs_012():
    with pytest.raises(InputError, match=r"from vLLM 0\.12\.0 on") as caught:
        spec(kind="pipeline", vllm_version="0.11.0")
    assert caught.value.field == "launcher"


def test_heads_must_divide():
    check_layout(model(), 2, "mp", 2, "0.33.0")
    with pytest.raises(InputError, match="divides the 4 attention heads") as caught:
        check_layout(model(), 3, "mp", 3, "0.33.0")
    assert caught.value.field == "placement"


# --- Kernels, code, budgets


@pytest.mark.parametrize(
    ("checkpoint", "at", "backend"),
    [
        (gpt_oss, "0.33.0", "marlin"),
        (gpt_oss, "0.19.0", "marlin"),
        (gpt_oss, "0.16.0", None),
        (nvfp4, "0.33.0", "marlin"),
        (model, "0.33.0", None),
    ],
)
def test_the_experts_kernels(checkpoint, at, backend):
    found = spec(checkpoint(), vllm_version=at)
    assert value(found, "--moe-backend") == backend
    assert ("mxfp4-on-sm121" in ids(found)) is (checkpoint is gpt_oss and backend is not None)


def test_emulation_brings_its_package():
    found = spec(gpt_oss(), extra_args="--moe-backend emulation")
    assert found.args.count("--moe-backend") == 1
    assert found.layers == ("amd-quark",)
    with pytest.raises(InputError, match="not emulation"):
        spec(gpt_oss(), extra_args="--moe-backend emulation", vllm_version="0.19.0")


def test_the_users_flag_replaces_the_plans():
    glm = model("zai-org/GLM-5", "GlmMoeDsaForCausalLM", "glm_moe_dsa")
    found = spec(glm, extra_args="--chat-template-content-format openai")
    assert found.args.count("--chat-template-content-format") == 1
    assert "flag-overruled" in ids(found)


def test_a_family_brings_its_flags():
    deepseek = model("deepseek-ai/DeepSeek-V4-Flash", "DeepseekV4ForCausalLM", "deepseek_v4")
    found = spec(deepseek)
    assert value(found, "--tokenizer-mode") == "deepseek_v4"
    assert found.args.count("--kv-cache-dtype") == 1
    assert value(found, "--kv-cache-dtype") == "fp8"
    other = spec(deepseek, kv_cache_dtype="auto")
    assert value(other, "--kv-cache-dtype") is None
    assert "kv-cache-dtype-against-the-family" in ids(other)
    assert "kv-cache-dtype-against-the-family" not in ids(spec(deepseek, kv_cache_dtype="fp8_ds_mla"))


MAPPED = {"AutoConfig": "configuration_x.X"}


@pytest.mark.parametrize(
    ("name", "architecture", "model_type", "at", "config", "tokenizer", "flag"),
    [
        ("deepseek-ai/DeepSeek-V3", "DeepseekV3ForCausalLM", "deepseek_v3", "0.33.0", MAPPED, {}, False),
        ("MiniMaxAI/MiniMax-M2", "MiniMaxM2ForCausalLM", "minimax_m2", "0.33.0", MAPPED, {}, False),
        ("MiniMaxAI/MiniMax-M2", "MiniMaxM2ForCausalLM", "minimax_m2", "0.19.0", MAPPED, {}, True),
        ("moonshotai/Kimi-K2.5", "KimiK25ForConditionalGeneration", "kimi_k25", "0.33.0", MAPPED, {}, True),
        ("someone/new", "NewForCausalLM", "new", "0.33.0", MAPPED, {}, True),
        ("someone/new", "NewForCausalLM", "new", "0.33.0", {}, {}, False),
        ("nvidia/Nemotron-Super", "DeciLMForCausalLM", "nemotron-nas", "0.33.0", MAPPED, {}, True),
        (
            "a/b",
            "Qwen3ForCausalLM",
            "qwen3",
            "0.33.0",
            {},
            {"auto_map": {"AutoTokenizer": ["t.T", None]}, "tokenizer_class": "OwnTokenizer"},
            True,
        ),
        (
            "a/b",
            "Qwen3ForCausalLM",
            "qwen3",
            "0.33.0",
            {},
            {"auto_map": {"AutoTokenizer": ["t.T", None]}, "tokenizer_class": "Qwen2Tokenizer"},
            False,
        ),
    ],
)
def test_code_is_trusted_only_where_it_is_needed(name, architecture, model_type, at, config, tokenizer, flag):
    checkpoint = read_checkpoint(
        {
            "id": name,
            "tokenizer_config": tokenizer,
            "config": {
                "architectures": [architecture],
                "model_type": model_type,
                **SIZES,
                **({"auto_map": config} if config else {}),
            },
        }
    )
    found = remote_code(checkpoint, at, None)
    assert found.flag is flag
    assert [finding.id for finding in found.findings] == (["remote-code"] if flag else [])


def test_code_that_is_refused_stops_the_play_where_it_is_needed():
    kimi = model("moonshotai/Kimi-K2.5", "KimiK25ForConditionalGeneration", "kimi_k25", auto_map=MAPPED)
    found = spec(kimi, trust_remote_code=False)
    assert "--trust-remote-code" not in found.args
    assert [finding.level for finding in found.findings if finding.id == "remote-code-refused"] == ["error"]
    assert spec(trust_remote_code=False).findings == spec().findings
    assert "--trust-remote-code" in spec(trust_remote_code=True).args


def test_a_thinking_model_gets_a_larger_budget_across_nodes():
    single, pair = spec(), spec(kind="pipeline")
    budget = [
        next(finding.what for finding in found.findings if finding.id == "reasoning-budget") for found in (single, pair)
    ]
    assert "2000" in budget[0]
    assert "8000" in budget[1]
    assert "context-below-reasoning-budget" in ids(spec(context=1024))


def test_plugins_are_loaded_from_where_they_are_mounted():
    plugin = 'ReasoningParserManager.register_module("own")'
    unknown = model("someone/new", "NewForCausalLM", "new")
    found = spec(unknown, parser_files={"parsers/own_parser.py": plugin})
    assert value(found, "--reasoning-parser") == "own"
    path = value(found, "--reasoning-parser-plugin")
    assert found.plugin_files == {path: "parsers/own_parser.py"}


@pytest.mark.parametrize(
    ("named", "more", "at", "said"),
    [
        ("LlamaTokenizerFast", [], "0.33.0", True),
        ("LlamaTokenizerFast", [], "0.19.0", False),
        ("LlamaTokenizerFast", ["tokenizer.model"], "0.33.0", False),
        ("PreTrainedTokenizerFast", [], "0.33.0", False),
    ],
)
def test_a_byte_level_tokenizer_under_the_wrong_class_is_said(named, more, at, said):
    checkpoint = read_checkpoint(
        {
            "id": "a/b",
            "files": ["model.safetensors", "tokenizer.json", *more],
            "tokenizer_config": {"tokenizer_class": named, "chat_template": "x"},
            "config": {"architectures": ["Qwen2ForCausalLM"], **SIZES},
        }
    )
    assert ("byte-level-tokenizer-class" in ids(spec(checkpoint, vllm_version=at))) is said


def test_a_repository_without_a_chat_template_is_said():
    files = ["model.safetensors", "tokenizer.json"]
    base = read_checkpoint(
        {
            "id": "a/b",
            "files": files,
            "tokenizer_config": {"tokenizer_class": "X"},
            "config": {"architectures": ["Qwen3ForCausalLM"], **SIZES},
        }
    )
    assert "no-chat-template" in ids(spec(base))


# --- Every real config


@pytest.mark.parametrize("at", ["0.19.0", "0.22.0", "0.25.1", "0.32.0", "0.33.0"])
def test_every_real_config_gets_a_command_line(at):
    shared_facts.shared_dir()
    for name in shared_facts.model_names():
        try:
            checkpoint = read_checkpoint(shared_facts.model_input(name))
        except InputError:
            continue
        found = spec(checkpoint, vllm_version=at)
        flags = [word for word in found.args if word.startswith("--")]
        assert len(flags) == len(set(flags)), name
        assert set(flags) <= set(found.reasons), name
        assert found.thinking != "none" or "--reasoning-parser" not in flags, name
