# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page, from a plan made by hand: only the contract's keys count."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.render import (
    BAR_WIDTH,
    LIMIT,
    as_json,
    flags,
    gib,
    markdown,
    memory_bar,
    page,
    verdict,
)

GIB = 1 << 30


def node(
    name: str, weights: float, kv: float, states: float = 0, overhead: float = 4, limit: float = 90
) -> dict[str, Any]:
    sizes = [int(size * GIB) for size in (weights, kv, states, overhead)]
    return {
        "name": name,
        "layers": [0, 40],
        "weight_bytes": sizes[0],
        "kv_bytes": sizes[1],
        "state_bytes": sizes[2],
        "overhead_bytes": sizes[3],
        "footprint_bytes": sum(sizes),
        "headroom_bytes": int(limit * GIB) - sum(sizes),
        "memory_total_bytes": int(121.69 * GIB),
    }


PLAN: dict[str, Any] = {
    "fits": True,
    "placement": {
        "kind": "pipeline",
        "nodes": ["spark1", "spark2"],
        "pipeline_parallel_size": 2,
        "tensor_parallel_size": 1,
        "launcher": "ray",
        "reason": "one node would need too much",
    },
    "model": {
        "id": "org/model",
        "architecture": "XForCausalLM",
        "family": "x",
        "sparsity": "moe",
        "attention": ["gqa", "sliding"],
        "parameters": 235_093_634_560,
        "active_parameters": 21_568_433_664,
        "native_context": 262144,
        "quantization": "nvfp4",
        "bits_per_weight": 4.5,
        "thinking": "on",
        "remote_code": True,
        "multimodal": True,
    },
    "memory": {
        "kv_bytes_per_token": 192512,
        "context": 32768,
        "concurrency": 12.3456,
        "kv_tokens": 404540,
        "nodes": [node("spark1", 62, 6), node("spark2", 63, 6, 1)],
    },
    "serve": {
        "image": "vllm/vllm-openai:v0.33.0",
        "vllm_version": "0.33.0",
        "args": ["--max-model-len", "32768", "--enable-x", "--hf-overrides", '{"a": -1}', "--seed", "-1"],
        "node_args": {"spark2": ["--headless"]},
        "reasons": {"--max-model-len": "the usual", "--enable-x": "the usual"},
        "env": {"common": {"A": "1"}, "nodes": {"spark1": {"B": "x y"}, "spark2": {}}},
        "layers_added_to_image": ["ray"],
    },
    "speed": {
        "decode_tokens_per_second": {"low": 10.4, "expected": 14.5, "high": 20.6},
        "roofline_tokens_per_second": 20.5,
        "bytes_per_token": 13_300_000_000,
        "bound_by": "memory bandwidth",
    },
    "findings": [
        {"level": "warning", "id": "b-id", "what": "What.", "why": "Why.", "fix": "Fix it.", "source": "s"},
        {"level": "note", "id": "c-id", "what": "Other.", "why": "", "fix": "", "source": "s"},
    ],
}


def changed(**memory: Any) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    plan["memory"].update(memory)
    return plan


def test_verdict_comes_first() -> None:
    lines = page(PLAN).splitlines()
    assert lines[0] == "org/model"
    assert lines[1] == "FITS in a pipeline of 2 nodes (spark1, spark2), with 16.0 GiB to spare on spark2"


def test_verdict_of_a_plan_that_misses() -> None:
    plan = changed(nodes=[node("spark1", 90, 6), node("spark2", 62, 6)])
    plan["fits"] = False
    assert verdict(plan) == "DOES NOT FIT in a pipeline of 2 nodes (spark1, spark2): 10.0 GiB too much on spark1"


def test_verdict_of_a_plan_with_room_that_will_not_run() -> None:
    assert verdict({**PLAN, "fits": False}).startswith("WILL NOT RUN")


def test_page_says_it_all() -> None:
    text = page(PLAN)
    flowing = " ".join(text.split())
    for words in (
        "235.1 B parameters, 21.6 B active",
        "gqa + sliding",
        "32,768 of 262,144 tokens",
        "12.35 requests",
        "188 KiB",
        "about 14.5 tokens/s",
        "10.4 to 20.6",
        "with ray added",
        "--max-model-len 32768 \\",
        "# the usual",
        "# the same",
        "and on spark2: --headless",
        "A=1",
        "on spark1",
        "! What. [b-id]",
        "→ Fix it.",
    ):
        assert words in flowing
    assert all(line == line.rstrip() for line in text.splitlines())
    assert text.endswith("\n")


@pytest.mark.parametrize("width", [60, 100, 160])
def test_sentences_keep_to_the_width(width: int) -> None:
    long = copy.deepcopy(PLAN)
    long["findings"][0]["why"] = "word " * 80
    finding_lines = page(long, width).split("Findings\n")[1].splitlines()
    assert max(len(line) for line in finding_lines) <= width


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((60, 20, 0, 4), {"█": 24, "▓": 8, "▒": 0}),
        ((0.01, 0, 0, 0.01), {"█": 1, "▓": 0, "░": 1}),  # what is not nothing shows
        ((500, 20, 10, 4), {"█": BAR_WIDTH, "▓": 0}),
    ],
)
def test_bars(parts: tuple[float, ...], expected: dict[str, int]) -> None:
    drawn = memory_bar(node("n", *parts))
    assert len(drawn) == BAR_WIDTH + 1
    assert drawn.count(LIMIT) == 1
    for sign, count in expected.items():
        assert drawn.count(sign) == count, drawn


@pytest.mark.parametrize("size", [0, 1, -1, GIB // 100])
def test_no_negative_zero(size: int) -> None:
    assert gib(size) == "0.0 GiB"


def test_flags_keep_their_values() -> None:
    assert flags(PLAN["serve"]["args"]) == [
        "--max-model-len 32768",
        "--enable-x",
        "--hf-overrides '{\"a\": -1}'",
        "--seed -1",
    ]


def test_markdown() -> None:
    text = markdown(PLAN)
    assert text.startswith("# org/model\n\n**FITS")
    assert "| spark1 | 0 to 39 | 62.0 GiB | 6.0 GiB | 0.0 GiB | 4.0 GiB | 72.0 GiB | 90.0 GiB |" in text
    assert "```sh\nvllm serve org/model \\\n  --max-model-len 32768" in text
    assert "- **warning** `b-id`: What. Why. *Fix:* Fix it." in text


def test_json_is_the_plan() -> None:
    assert json.loads(as_json(PLAN)) == PLAN


def test_a_plan_with_nothing_to_say() -> None:
    plan = copy.deepcopy(PLAN)
    plan.update(findings=[])
    plan["serve"].update(env={"common": {}, "nodes": {}}, reasons={}, node_args={}, layers_added_to_image=[])
    plan["model"].update(sparsity="dense", attention=[], thinking="none", quantization="none", bits_per_weight=16)
    plan["memory"].update(kv_bytes_per_token=0)
    flowing = " ".join(page(plan).split())
    assert "Environment" not in flowing
    assert "no attention" in flowing
    assert "the cache does not grow" in flowing
    assert "None." in markdown(plan)
