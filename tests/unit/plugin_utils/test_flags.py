# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's own arguments, held against a version."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.flags import (
    asks_rope_scaling,
    check_extra,
    check_value,
    knows,
    listed_form,
    needs_draft_model,
    split_arguments,
)


@pytest.mark.parametrize(
    ("word", "at", "form"),
    [
        ("--max_model_len", "0.33.0", "--max-model-len"),
        ("--max-model-len=4096", "0.33.0", "--max-model-len"),
        ("--hf-overrides.rope_parameters.factor", "0.33.0", "--hf-overrides"),
        ("--no-enable-prefix-caching", "0.19.0", "--enable-prefix-caching"),
        ("--disable-prefix-caching", "0.33.0", "--enable-prefix-caching"),
        ("--disable-prefix-caching", "0.32.0", "--disable-prefix-caching"),
        ("--enable-custom-all-reduce", "0.33.0", "--disable-custom-all-reduce"),
        ("-O3", "0.33.0", "-O"),
        ("-cc.cudagraph_mode=PIECEWISE", "0.33.0", "-cc"),
        ("-tp", "0.33.0", "-tp"),
    ],
)
def test_a_flag_has_one_listed_form(word, at, form):
    assert listed_form(word, at) == form


@pytest.mark.parametrize(
    ("flag", "at", "known"),
    [
        ("--moe-backend", "0.16.0", False),
        ("--moe-backend", "0.17.0", True),
        ("--swap-space", "0.17.0", True),
        ("--swap-space", "0.18.0", False),
        ("--nnodes", "0.11.0", False),
        ("--nnodes", "0.12.0", True),
        ("--no-enable-prefix-caching", "0.33.0", True),
    ],
)
def test_what_a_version_knows(flag, at, known):
    assert knows(flag, at) is known


def test_arguments_are_split_with_their_values():
    found = split_arguments(["--a", "1", "--b=2", "--c", "x", "y", "--d", "-1"], "0.33.0")
    assert [(item.flag, item.value) for item in found] == [
        ("--a", "1"),
        ("--b", "2"),
        ("--c", "x y"),
        ("--d", "-1"),
    ]


@pytest.mark.parametrize(
    ("words", "at", "hint"),
    [
        (["Qwen/Qwen3-8B"], "0.33.0", "in front of any"),
        (["--max-model-len", "1"], "0.33.0", "ask for it with context"),
        (["--max_model_len=1"], "0.33.0", "ask for it with context"),
        (["-tp", "2"], "0.33.0", "placement"),
        (["--no-enable-prefix-caching"], "0.33.0", "prefix_caching"),
        (["--disable-prefix-caching"], "0.33.0", "prefix_caching"),
        (["--swap-space", "4"], "0.33.0", "it went with 0.18.0"),
        (["--linear-backend", "marlin"], "0.19.0", "it came with 0.22.0"),
        (["--enforce-eagre"], "0.33.0", "did you mean --enforce-eager?"),
        (["--no-such-thing-at-all"], "0.33.0", "--no-such-thing-at-all is unknown"),
        (["--moe-backend", "emulation"], "0.19.0", "not emulation"),
        (["--moe-backend=nope"], "0.33.0", "not nope"),
    ],
)
def test_what_does_not_fit_is_refused(words, at, hint):
    with pytest.raises(InputError) as caught:
        check_extra(words, at, strict=True)
    assert caught.value.field == "extra_args"
    assert hint in caught.value.message


def test_an_image_built_elsewhere_may_know_more():
    arguments, findings = check_extra(["--gpu-memory-utilization-gb", "90"], "0.33.0", strict=False)
    assert arguments[0].words == ("--gpu-memory-utilization-gb", "90")
    assert [finding.id for finding in findings] == ["argument-not-in-release"]
    with pytest.raises(InputError):
        check_extra(["--max-model-len", "1"], "0.33.0", strict=False)


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        (["--hf-overrides", '{"rope_parameters": {"rope_type": "yarn", "factor": 4}}'], True),
        (["--hf-overrides.rope_scaling.factor", "4"], True),
        (['--hf-overrides={"text_config": {"rope_parameters": {}}}'], True),
        (["--hf-overrides", '{"architectures": ["X"]}'], False),
        (["--enforce-eager"], False),
        ([], False),
    ],
)
def test_rope_scaling_is_seen(words, asks):
    assert asks_rope_scaling(words, "0.33.0") is asks


def test_values_of_wishes():
    assert check_value("kv_cache_dtype", "--kv-cache-dtype", "fp8", "0.19.0", True) == ()
    with pytest.raises(InputError, match="expected one of") as caught:
        check_value("kv_cache_dtype", "--kv-cache-dtype", "nvfp4", "0.19.0", True)
    assert caught.value.field == "kv_cache_dtype"
    (finding,) = check_value("kv_cache_dtype", "--kv-cache-dtype", "nvfp4", "0.33.0", True)
    assert (finding.id, finding.level) == ("value-not-on-gb10", "error")


@pytest.mark.parametrize(
    ("method", "needs"),
    [("mtp", False), ("deepseek_mtp", False), ("ngram", False), ("eagle3", True), ("draft_model", True)],
)
def test_methods_that_need_a_draft_model(method, needs):
    assert needs_draft_model(method) is needs
