# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The layout of real models by vLLM's own planning code, against the planner's, page for page.

Needs ``VLLM_PYTHON`` as test_engine.py does (vLLM 0.32 or newer, CPU build), and the configs of published
models; without them the tiny checkpoints alone are compared. ``VLLM_LAYOUTS=N`` compares the first N alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.attention import layer_caches
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError, read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.memory import kv_layout
from ansible_collections.dgx_spark.vllm.tests.engine.checkpoints import CHECKPOINTS
from ansible_collections.dgx_spark.vllm.tests.engine.test_engine import PYTHON, vllm_version
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts

CONTEXT, BATCH_TOKENS = 32768, 8192


def cases() -> list[dict[str, Any]]:
    """Text models, one with experts first; quantization left out, since it does not change the caches."""
    configs: dict[str, Any] = {f"tiny {name}": config for name, config in CHECKPOINTS.items()}
    for name in shared_facts.model_names():
        config = dict(shared_facts.model_input(name)["config"])
        if "text_config" not in config and config.get("architectures"):
            configs[name] = {k: v for k, v in config.items() if k not in ("auto_map", "quantization_config")}
    named = sorted(configs, key=lambda name: name != "tiny moe")
    most = int(os.environ.get("VLLM_LAYOUTS", len(named)))
    return [
        {
            "name": name,
            "config": configs[name],
            "context": CONTEXT,
            "batch_tokens": BATCH_TOKENS,
            "prefix_caching": caching,
        }
        for name in named[:most]
        for caching in (False, True)
    ]


def planned(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The planner's layout with the block sizes of a CPU."""
    model = read_checkpoint({"id": case["name"], "config": case["config"]})
    latent = any(cache.kind == "mla" for cache in layer_caches(model))
    state_dtype = answer["state_dtype"]
    layout = kv_layout(
        model,
        max_num_batched_tokens=answer["tokens_in_flight"],
        prefix_caching=case["prefix_caching"],
        vllm_version=vllm_version(),
        context=CONTEXT,
        block_size=16 if latent else 128,
        kernel_block=16 if latent else 32,
        async_scheduling=False,
        runner_v2=False,
        mamba_ssm_cache_dtype=None if state_dtype == "auto" else state_dtype,
    )
    return {
        "block": layout.block_tokens,
        "bytes_per_block": layout.bytes_per_block[0],
        "blocks": sum(layout.group_blocks(CONTEXT)),
        "groups": sorted(len(group.layers) for group in layout.groups),
    }


@pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON names no Python with vLLM; see the module's text")
def test_layouts_of_real_models() -> None:
    questions = cases()
    run = subprocess.run(
        [PYTHON, str(Path(__file__).with_name("lay_out.py"))],
        input="".join(json.dumps(case) + "\n" for case in questions),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("LAYOUT ")]
    answers = [json.loads(line.removeprefix("LAYOUT ")) for line in lines]
    assert len(answers) == len(questions)
    compared, unasked, wrong = 0, [], []
    for case, answer in zip(questions, answers, strict=True):
        if "error" in answer:
            unasked.append(f"{case['name']}: {answer['error'][:120]}")
            continue
        try:
            plan = planned(case, answer)
        except InputError as problem:
            unasked.append(f"{case['name']}: {problem}")
            continue
        real = {key: answer[key] for key in plan}
        compared += 1
        if plan != real:
            wrong.append(f"{case['name']}, prefix caching {case['prefix_caching']}: {plan} instead of {real}")
    print(f"layouts: {compared} compared, {len(wrong)} differ, {len(unasked)} not asked")
    print("\n".join(f"  not asked: {reason}" for reason in dict.fromkeys(unasked)))
    assert not wrong, "\n".join(wrong)
    assert compared > len(questions) // 2
