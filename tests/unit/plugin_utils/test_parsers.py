# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parsers by model, by version, by template, and from a repository's own file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError, read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.parsers import (
    Registered,
    choose_parsers,
    known_parsers,
    registered_parsers,
    repository_name,
)
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts

TABLE = yaml.safe_load(Path(__file__).with_name("model_parsers.yml").read_text(encoding="utf-8"))["models"]
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}
SWITCH = "{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{%- endif %}"
OPENED = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
OTHER_TOKENS = {"added_tokens_decoder": {"1": {"content": "<s>"}}}
TOKENS = {"added_tokens_decoder": {"1": {"content": "<think>"}, "2": {"content": "</think>"}}}


def model(name, architecture="", model_type="", **more):
    config = {"architectures": [architecture] if architecture else [], "model_type": model_type, **SIZES}
    return read_checkpoint({"id": name, "config": config, **more})


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_parsers_of_published_models(row):
    name, architecture, model_type, thinking, reasoning, tool = row
    found = choose_parsers(model(name, architecture, model_type), "0.33.0")
    assert (found.thinking, found.reasoning or "-", found.tool or "-") == (thinking, reasoning, tool)


@pytest.mark.parametrize("at", ["0.19.0", "0.22.0", "0.25.1", "0.32.0", "0.33.0"])
def test_a_version_gets_only_names_it_registers(at):
    for name, architecture, model_type in (row[:3] for row in TABLE):
        found = choose_parsers(model(name, architecture, model_type), at)
        assert found.reasoning is None or found.reasoning in known_parsers("reasoning", at), name
        assert found.tool is None or found.tool in known_parsers("tool", at), name
        assert found.thinking != "none" or found.reasoning is None, name


@pytest.mark.parametrize(
    ("template", "more", "thinking", "reasoning", "tool"),
    [
        (SWITCH, {}, "on", "qwen3", None),
        (SWITCH + "<tool_call>", TOKENS, "on", "qwen3", "hermes"),
        (OPENED + "<function=", {}, "always", "deepseek_r1", "qwen3_coder"),
        (OPENED, OTHER_TOKENS, "none", None, None),
        ("{% if enable_thinking %}<think>{% endif %}", {}, "off", "qwen3", None),
        ("{% if enable_thinking %}<think>{% endif %}", OTHER_TOKENS, "off", None, None),
        ("{% if other(enable_thinking) %}<think>{% endif %}", {}, "off", None, None),
        ("{% if enable_thinking is not defined %}{% set enable_thinking = true %}", {}, "on", "qwen3", None),
        ("plain [TOOL_CALLS]", {}, "none", None, "mistral"),
        (None, {}, "none", None, None),
    ],
)
def test_a_model_no_row_knows_is_told_by_its_template(template, more, thinking, reasoning, tool):
    found = choose_parsers(
        model("someone/new-model", "NewForCausalLM", chat_template=template, tokenizer_config=more), "0.33.0"
    )
    assert (found.thinking, found.reasoning, found.tool) == (thinking, reasoning, tool)
    assert [finding.id for finding in found.findings] == ["parsers-not-in-table"]


def test_a_thinking_name_needs_the_tokens():
    unproven = choose_parsers(model("someone/new-thinking", "NewForCausalLM"), "0.33.0")
    proven = choose_parsers(model("someone/new-thinking", "NewForCausalLM", tokenizer_config=TOKENS), "0.33.0")
    assert (unproven.reasoning, proven.reasoning) == (None, "deepseek_r1")


def test_a_template_without_switch_takes_the_parser_away():
    qwen = ("someone/Qwen3-8B-Roleplay", "Qwen3ForCausalLM", "qwen3")
    assert choose_parsers(model(*qwen, chat_template=SWITCH), "0.33.0").reasoning == "qwen3"
    found = choose_parsers(model(*qwen, chat_template="<|im_start|>{{ message }}"), "0.33.0")
    assert (found.thinking, found.reasoning) == ("none", None)
    assert "template-without-thinking" in {finding.id for finding in found.findings}


def test_a_template_that_defaults_to_off_is_told_to_the_parser():
    small = ("Qwen/Qwen3.5-0.8B", "Qwen3_5ForConditionalGeneration", "qwen3_5")
    closed = "{% if enable_thinking is defined and enable_thinking is true %}<think>{% else %}<think></think>"
    found = choose_parsers(model(*small, chat_template=closed), "0.33.0")
    assert (found.thinking, found.reasoning, found.toggle) == ("off", "qwen3", "enable_thinking: true")
    assert [argument.value for argument in found.arguments] == ['{"enable_thinking": false}']
    assert choose_parsers(model(*small, chat_template=SWITCH), "0.33.0").arguments == ()


def test_a_tokenizer_without_the_tokens_takes_the_parser_away():
    tokens = {"added_tokens_decoder": {"1": {"content": "<|im_end|>"}}}
    found = choose_parsers(model("Qwen/Qwen3-8B", "Qwen3ForCausalLM", "qwen3", tokenizer_config=tokens), "0.33.0")
    assert found.reasoning is None
    assert "reasoning-tokens-missing" in {finding.id for finding in found.findings}


def test_a_local_directory_is_told_by_architecture_and_template():
    path = "/srv/models/our-model"
    assert choose_parsers(model(path, "Qwen3ForCausalLM"), "0.33.0").reasoning is None
    assert choose_parsers(model(path, "Qwen3ForCausalLM", chat_template=SWITCH), "0.33.0").reasoning == "qwen3"
    assert choose_parsers(model(path, "MiniMaxM2ForCausalLM"), "0.33.0").tool == "minimax_m2"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("/srv/models/Qwen3-8B/", "qwen3-8b"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0a1b", "qwen3-8b"),
    ],
)
def test_the_repository_name(text, name):
    assert repository_name(text) == name


@pytest.mark.parametrize(("at", "thinking"), [("0.20.0", "off"), ("0.27.0", "off"), ("0.28.0", "on"), ("0.33.0", "on")])
def test_thinking_may_change_with_the_version(at, thinking):
    assert choose_parsers(model("deepseek-ai/DeepSeek-V4-Flash", "DeepseekV4ForCausalLM"), at).thinking == thinking


@pytest.mark.parametrize(("at", "parser"), [("0.13.0", "deepseek_r1"), ("0.18.0", "deepseek_r1"), ("0.19.0", "qwen3")])
def test_a_parser_may_change_with_the_version(at, parser):
    assert choose_parsers(model("Qwen/Qwen3-4B-Thinking-2507", "Qwen3ForCausalLM"), at).reasoning == parser


def test_a_parser_that_is_too_new_is_left_out_and_said():
    found = choose_parsers(model("moonshotai/Kimi-K3", "KimiK3ForConditionalGeneration"), "0.19.0")
    assert (found.reasoning, found.tool) == (None, None)
    assert {"reasoning-parser-too-new", "tool-parser-too-new"} <= {finding.id for finding in found.findings}
    assert any("0.27.0" in finding.fix for finding in found.findings)


PLUGIN = """
import torch  # never imported by the reader
from vllm.reasoning import ReasoningParserManager as Manager
from vllm.tool_parsers import abstract_tool_parser as tools

NAME = "by_constant"

@Manager.register_module("by_decorator")
class One: ...

@Manager.register_module()
class ByClass: ...

@tools.ToolParserManager.register_module(["by_list_a", "by_list_b"])
class Two: ...

Manager.register_lazy_module(name="by_lazy", module_path="x", class_name="Y")
Manager.register_module(name=NAME, module=One)
Other.register_module("not_a_parser")
"""


def test_names_are_read_from_a_plugin_without_running_it():
    assert registered_parsers(PLUGIN) == (
        Registered("reasoning", "by_decorator"),
        Registered("reasoning", "ByClass"),
        Registered("tool", "by_list_a"),
        Registered("tool", "by_list_b"),
        Registered("reasoning", "by_lazy"),
        Registered("reasoning", "by_constant"),
    )


@pytest.mark.parametrize("text", ["", "def (:", "x = 1", "\0"])
def test_a_file_without_parsers_has_none(text):
    assert registered_parsers(text) == ()


NANO = '@ReasoningParserManager.register_module("nano_v3")\nclass P: ...'
JSON = 'ToolParserManager.register_lazy_module("nemotron_json", "a", "b")'


def test_a_shipped_parser_fills_what_the_version_lacks():
    nemotron = model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NemotronHForCausalLM", "nemotron_h")
    files = {"nano_v3_reasoning_parser.py": NANO}
    old = choose_parsers(nemotron, "0.16.0", parser_files=files)
    assert old.reasoning == "nano_v3"
    assert old.plugins[0].path.endswith("/nano_v3_reasoning_parser.py")
    assert "parser-plugin-runs-code" in {finding.id for finding in old.findings}
    assert choose_parsers(nemotron, "0.33.0", parser_files=files).reasoning == "nemotron_v3"


def test_a_shipped_parser_that_was_not_read_is_said():
    nano = model("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "NemotronHForCausalLM", "nemotron_h")
    found = choose_parsers(nano, "0.33.0")
    assert found.tool is None
    assert "tool-parser-in-repository" in {finding.id for finding in found.findings}
    read = choose_parsers(nano, "0.33.0", parser_files={"nemotron_toolcall_parser_no_streaming.py": JSON})
    assert read.tool == "nemotron_json"


def test_an_unknown_model_takes_what_its_repository_ships():
    found = choose_parsers(model("someone/new", "NewForCausalLM"), "0.33.0", parser_files={"p.py": NANO})
    assert (found.reasoning, found.plugins[0].file) == ("nano_v3", "p.py")


def test_parser_files_are_a_mapping():
    with pytest.raises(InputError) as caught:
        choose_parsers(model("a/b"), "0.33.0", parser_files=["p.py"])
    assert caught.value.field == "model.parser_files"


def test_a_wished_parser_must_exist():
    qwen = model("Qwen/Qwen3-8B", "Qwen3ForCausalLM")
    assert choose_parsers(qwen, "0.33.0", "deepseek_r1", "none").reasoning == "deepseek_r1"
    assert choose_parsers(qwen, "0.33.0", "none", "none").tool is None
    with pytest.raises(InputError, match=r"near: .*qwen3") as caught:
        choose_parsers(qwen, "0.33.0", "qwen33")
    assert caught.value.field == "reasoning_parser"
    with pytest.raises(InputError, match=r"came with 0\.33\.0"):
        choose_parsers(qwen, "0.32.0", None, "step5")
    assert choose_parsers(qwen, "0.33.0", "from_a_fork", strict=False).reasoning == "from_a_fork"


def test_a_wished_reasoning_parser_on_a_model_that_never_thinks_is_warned_about():
    coder = model("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3MoeForCausalLM")
    found = choose_parsers(coder, "0.33.0", "qwen3")
    assert [finding.id for finding in found.findings] == ["reasoning-parser-without-thinking"]


def test_mistrals_own_format_is_used_where_the_repository_holds_it():
    name = ("mistralai/Magistral-Small-2509", "Mistral3ForConditionalGeneration")
    own = ["params.json", "consolidated.safetensors", "tekken.json"]
    flags = {argument.flag for argument in choose_parsers(model(*name, files=own), "0.33.0").arguments}
    assert flags == {"--tokenizer-mode", "--config-format", "--load-format"}
    assert choose_parsers(model(*name, files=["model.safetensors"]), "0.33.0").arguments == ()


# Where the recipe names no parser although vLLM has one, or a plugin that vLLM has taken in since.
RECIPE_SAYS_LESS = {"nano_v3", "nemotron_json"}
RECIPE_DIFFERS = {"deepseek-ai/DeepSeek-V3"}


def test_the_recipes_agree():
    checked = 0
    for recipe in shared_facts.load("facts/vllm-recipes.json"):
        found = choose_parsers(model(recipe["model_id"]), "0.33.0")
        tools = [name.replace("qwen3_xml", "qwen3_coder") for name in recipe["tool_parser"]]
        for ours, theirs in (
            ((found.tool or "").replace("qwen3_xml", "qwen3_coder"), tools),
            (found.reasoning, recipe["reasoning_parser"]),
        ):
            wanted = set(theirs) - RECIPE_SAYS_LESS
            if wanted and recipe["model_id"] not in RECIPE_DIFFERS:
                checked += 1
                assert ours in wanted, recipe["model_id"]
    assert checked > 100
