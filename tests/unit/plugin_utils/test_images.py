# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which image, which version, and what that version lacks."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError, read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.images import (
    choose_image,
    layer,
    serves,
    support,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import read_wishes

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def model(name="Qwen/Qwen3-8B", architecture="Qwen3ForCausalLM", **more):
    return read_checkpoint({"id": name, "config": {"architectures": [architecture], **SIZES}, **more})


def chosen(checkpoint=None, **wishes):
    return choose_image(checkpoint or model(), read_wishes(**wishes))


def ids(image):
    return [finding.id for finding in image.findings]


@pytest.mark.parametrize(
    ("wishes", "reference", "version", "findings"),
    [
        ({}, "vllm/vllm-openai:v0.33.0", "0.33.0", []),
        ({"vllm_version": "0.25.1"}, "vllm/vllm-openai:v0.25.1", "0.25.1", []),
        ({"vllm_version": "0.19.0"}, "vllm/vllm-openai:v0.19.0-cu130", "0.19.0", []),
        ({"vllm_version": "0.40.0"}, "vllm/vllm-openai:v0.40.0", "0.40.0", ["version-not-read"]),
        ({"image": "vllm/vllm-openai:v0.22.0"}, "vllm/vllm-openai:v0.22.0", "0.22.0", []),
        ({"image": "vllm/vllm-openai:v0.25.1-aarch64-cu129"}, None, "0.25.1", ["cuda-12-image"]),
        ({"image": "vllm/vllm-openai:v0.19.0"}, None, "0.19.0", ["cuda-12-release"]),
        ({"image": "vllm/vllm-openai:v0.19.0-cu130"}, None, "0.19.0", []),
        ({"image": "vllm/vllm-openai:cu130-nightly"}, None, "0.19.0", ["frozen-nightly", "moving-tag"]),
        ({"image": "vllm/vllm-openai:nightly"}, None, "0.33.0", ["image-version-unknown", "moving-tag"]),
        ({"image": "vllm/vllm-openai:nightly", "vllm_version": "0.32.0"}, None, "0.32.0", ["moving-tag"]),
        ({"image": "nvcr.io/nvidia/vllm:26.04-py3"}, None, "0.19.0", ["ngc-image"]),
        ({"image": "ghcr.io/someone/spark:1"}, None, "0.33.0", ["image-version-unknown"]),
        ({"image": "ghcr.io/someone/spark:1", "vllm_version": "0.27.1"}, None, "0.27.1", []),
    ],
)
def test_the_image_and_its_version(wishes, reference, version, findings):
    image = chosen(**wishes)
    assert image.reference == (reference or wishes["image"])
    assert (image.version, ids(image)) == (version, findings)


def test_only_a_release_is_exact():
    assert chosen().exact
    assert chosen(image="vllm/vllm-openai:v0.22.0").exact
    assert not chosen(image="vllm/vllm-openai:nightly").exact
    assert not chosen(image="ghcr.io/someone/spark:1").exact


def test_image_and_version_must_agree():
    with pytest.raises(InputError, match=r"expected 0\.22\.0") as caught:
        chosen(image="vllm/vllm-openai:v0.22.0", vllm_version="0.33.0")
    assert caught.value.field == "vllm_version"


@pytest.mark.parametrize(
    ("architecture", "at", "served"),
    [
        ("Qwen3ForCausalLM", "0.19.0", True),
        ("DeepseekV4ForCausalLM", "0.19.0", False),
        ("DeepseekV4ForCausalLM", "0.20.0", True),
        ("MiniMaxM1ForCausalLM", "0.23.0", True),
        ("MiniMaxM1ForCausalLM", "0.33.0", False),
        ("NoSuchForCausalLM", "0.33.0", None),
    ],
)
def test_what_a_version_serves(architecture, at, served):
    assert serves(architecture, at) is served


def test_an_architecture_that_left_gets_the_last_release_that_had_it():
    image = chosen(model("MiniMaxAI/MiniMax-M1-40k", "MiniMaxM1ForCausalLM"))
    assert (image.version, image.findings) == ("0.23.0", ())
    assert ids(chosen(model("m", "MllamaForConditionalGeneration"))) == ["architecture-removed"]
    assert support("MllamaForConditionalGeneration").last == "0.10.2"


def test_an_architecture_too_new_for_the_asked_release_stops_the_play():
    image = chosen(model("deepseek-ai/DeepSeek-V4-Flash", "DeepseekV4ForCausalLM"), vllm_version="0.19.0")
    (finding,) = image.findings
    assert (finding.id, finding.level) == ("architecture-too-new", "error")
    assert "0.20.0" in finding.fix


def test_a_second_format_may_load_on_an_older_release():
    devstral = model("mistralai/Devstral-2-123B-Instruct-2512", "Ministral3ForCausalLM")
    found = chosen(devstral, vllm_version="0.19.0")
    assert [(finding.id, finding.level) for finding in found.findings] == [("architecture-too-new", "warning")]


def test_between_two_releases_looked_at_nobody_knows():
    found = chosen(model("deepseek-ai/DeepSeek-V4-Flash", "DeepseekV4ForCausalLM"), vllm_version="0.19.1")
    assert [(finding.id, finding.level) for finding in found.findings] == [("architecture-too-new", "warning")]
    assert found.exact
    assert not chosen(vllm_version="0.14.0").exact
    assert not chosen(vllm_version="0.25.0").exact


def test_an_unknown_architecture_is_said():
    assert ids(chosen(model("m", "NoSuchForCausalLM"))) == ["architecture-not-in-vllm"]


def test_mixed_precision_needs_a_newer_build_than_ngcs():
    mixed = model("nvidia/X", quant_config={"quantization": {"quant_algo": "MIXED_PRECISION"}})
    assert mixed.quantization.algo == "MIXED_PRECISION"
    assert "modelopt-mixed" not in ids(chosen(mixed))
    old = chosen(mixed, image="nvcr.io/nvidia/vllm:26.02-py3")
    assert [finding.level for finding in old.findings if finding.id == "modelopt-mixed"] == ["error"]


def test_a_recipe_that_asks_for_more_is_heard():
    glm = model("zai-org/GLM-5.2", "GlmMoeDsaForCausalLM")
    assert ids(chosen(glm, vllm_version="0.22.0")) == ["recipe-glm-5.2"]
    assert ids(chosen(glm)) == []


@pytest.mark.parametrize(
    ("at", "requirement"),
    [("0.17.0", None), ("0.18.0", "ray==2.54.0"), ("0.28.0", "ray==2.55.1"), ("0.33.0", "ray==2.56.1")],
)
def test_the_ray_to_add(at, requirement):
    found = layer("ray", at)
    assert (found.requirement if found else None) == requirement
