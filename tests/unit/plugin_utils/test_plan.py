# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole plans: the contract's shape, placement, findings, refusals, and every known config."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.demand import balanced
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.placement import GIB
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.plan import make_plan
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.render import FORMATS
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODELS: dict[str, Any] = json.loads((FIXTURES / "speed_models.json").read_text(encoding="utf-8"))
SPARK = int(121.69 * GIB)


def llama(layers: int = 32, hidden: int = 4096, **config: Any) -> dict[str, Any]:
    """A plain dense model."""
    return {
        "id": "org/plain",
        "config": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "intermediate_size": hidden * 7 // 2,
            "num_attention_heads": hidden // 128,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            **config,
        },
    }


def known(name: str) -> dict[str, Any]:
    return {"id": f"org/{name}", **MODELS[name]}


def nodes(count: int, **facts: Any) -> list[dict[str, Any]]:
    return [{"name": f"spark{n + 1}", "memory_total_bytes": SPARK, **facts} for n in range(count)]


def ids(plan: dict[str, Any], level: str | None = None) -> list[str]:
    return [finding["id"] for finding in plan["findings"] if level in (None, finding["level"])]


KEYS = {
    "": ["fits", "placement", "model", "memory", "serve", "speed", "findings"],
    "placement": [
        "kind",
        "nodes",
        "pipeline_parallel_size",
        "tensor_parallel_size",
        "launcher",
        "reason",
    ],
    "model": [
        "architecture",
        "family",
        "sparsity",
        "attention",
        "parameters",
        "active_parameters",
        "native_context",
        "quantization",
        "bits_per_weight",
        "thinking",
        "remote_code",
        "multimodal",
    ],
    "memory": ["kv_bytes_per_token", "context", "concurrency", "kv_tokens", "nodes"],
    "serve": ["image", "vllm_version", "args", "env", "layers_added_to_image"],
    "speed": ["decode_tokens_per_second", "roofline_tokens_per_second", "bytes_per_token", "bound_by"],
}
NODE_KEYS = [
    "name",
    "layers",
    "weight_bytes",
    "kv_bytes",
    "state_bytes",
    "overhead_bytes",
    "footprint_bytes",
    "headroom_bytes",
]


def check_contract(plan: dict[str, Any]) -> None:
    """Every key, of the kind it should be; sums that add up; nothing JSON cannot hold."""
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    for part, keys in KEYS.items():
        assert set(keys) <= set(plan[part] if part else plan), part
    assert isinstance(plan["memory"]["kv_bytes_per_token"], int)
    assert plan["model"]["sparsity"] in ("dense", "moe")
    assert plan["model"]["thinking"] in ("none", "on", "off", "always", "adaptive")
    rows = plan["memory"]["nodes"]
    assert [row["name"] for row in rows] == plan["placement"]["nodes"]
    for row in rows:
        assert set(NODE_KEYS) <= set(row)
        parts = ("weight_bytes", "kv_bytes", "state_bytes", "overhead_bytes")
        assert all(isinstance(row[part], int) and row[part] >= 0 for part in parts)
        assert row["footprint_bytes"] == sum(row[part] for part in parts)
    sizes = [plan["placement"][f"{kind}_parallel_size"] for kind in ("pipeline", "tensor")]
    assert sizes[0] * sizes[1] == len(rows)
    assert set(plan["serve"]["env"]) >= {"common", "nodes"}
    for finding in plan["findings"]:
        assert set(finding) == {"level", "id", "what", "why", "fix", "source"}
        assert all(isinstance(value, str) for value in finding.values())
        assert finding["what"]
    assert plan["fits"] is (not any(finding["level"] == "error" for finding in plan["findings"]))
    if plan["fits"]:
        assert all(row["headroom_bytes"] >= 0 for row in rows)
        assert plan["memory"]["concurrency"] >= 1
    for write in FORMATS.values():
        assert write(plan)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("count", [1, 2])
def test_fixture_models(name: str, count: int) -> None:
    check_contract(make_plan(known(name), nodes(count)))


@pytest.mark.parametrize("name", shared_facts.model_names() or [None])
def test_every_known_config(name: str | None) -> None:
    """Each config there is gets an answer on one, two and four nodes; adding nodes makes none unfit."""
    if name is None:
        shared_facts.shared_dir()
    model = shared_facts.model_input(str(name))
    fits = False
    for count in (1, 2, 4):
        plan = make_plan(model, nodes(count))
        check_contract(plan)
        assert plan["fits"] or not fits
        fits = plan["fits"]


def test_published_placements() -> None:
    """What ran elsewhere fits, what did not does not; where a log names the weights they agree."""
    rows = yaml.safe_load((FIXTURES / "placements.yml").read_text(encoding="utf-8"))["rows"]
    models = {**MODELS, **json.loads((FIXTURES / "placement_models.json").read_text(encoding="utf-8"))}
    right, off = [], []
    for row in rows:
        model = {"id": f"org/{row['model']}", **models[row["model"]]}
        if "size" in row:
            model["weight_bytes"] = int(row["size"] * 10**9)
        plan = make_plan(model, nodes(row["nodes"]), **row.get("wishes", {}))
        check_contract(plan)
        right.append(plan["fits"] is row["fits"])
        if "gib_per_node" in row:
            planned = plan["memory"]["nodes"][0]["weight_bytes"] / GIB
            off.append(abs(planned / row["gib_per_node"] - 1))
    assert sum(right) / len(right) >= 0.95
    assert max(off) <= 0.04


def test_one_node_if_it_fits() -> None:
    plan = make_plan(llama(), nodes(2))
    assert plan["fits"]
    assert plan["placement"]["kind"] == "single"
    assert plan["placement"]["nodes"] == ["spark1"]
    assert plan["memory"]["gpu_memory_utilization"] == 0.85
    assert "--gpu-memory-utilization 0.85" in " ".join(plan["serve"]["args"])
    assert plan["memory"]["context"] == 32768


def test_two_nodes_where_one_is_too_small() -> None:
    plan = make_plan(llama(80, 8192), nodes(3))
    assert plan["fits"]
    placement = plan["placement"]
    assert (placement["kind"], placement["nodes"]) == ("pipeline", ["spark1", "spark2"])
    assert [row["layers"] for row in plan["memory"]["nodes"]] == [[0, 40], [40, 80]]
    assert all(row["footprint_bytes"] <= 90 * GIB for row in plan["memory"]["nodes"])
    assert plan["memory"]["gpu_memory_utilization"] == 0.74
    assert {"tensor-parallel-possible", "sustained-load-on-one-node", "dense-model"} <= set(ids(plan))
    assert "--pipeline-parallel-size 2" in " ".join(plan["serve"]["args"])


def test_asked_tensor() -> None:
    plan = make_plan(llama(80, 8192), nodes(2), placement="tensor")
    assert plan["placement"]["tensor_parallel_size"] == 2
    assert [row["layers"] for row in plan["memory"]["nodes"]] == [[0, 80], [0, 80]]
    assert "tensor-parallel-needs-the-fabric" in ids(plan)
    both = plan["speed"]["decode_tokens_per_second"]["expected"]
    staged = make_plan(llama(80, 8192), nodes(2))["speed"]["decode_tokens_per_second"]["expected"]
    assert both > 1.5 * staged


def test_asked_pipeline_takes_all_nodes() -> None:
    plan = make_plan(llama(), nodes(4), placement="pipeline", launcher="mp")
    assert plan["placement"]["pipeline_parallel_size"] == 4
    assert plan["placement"]["launcher"] == "mp"
    assert "sustained-load-on-one-node" in ids(plan, "warning"), "one node would do"


def test_ray_is_the_usual_launcher() -> None:
    assert make_plan(llama(80, 8192), nodes(2))["placement"]["launcher"] == "ray"


def test_refuses_with_the_least_change() -> None:
    plan = make_plan(llama(80, 8192), nodes(1))
    assert not plan["fits"]
    assert ids(plan)[0] == "memory-does-not-fit"
    fix = plan["findings"][0]["fix"]
    assert "take 2 such nodes" in fix
    assert "quantization" in fix


def test_a_shorter_context_or_a_smaller_cache_is_offered() -> None:
    model = llama(80, 8192, num_key_value_heads=64)
    plan = make_plan(model, nodes(2), context=131072)
    assert not plan["fits"]
    fix = plan["findings"][0]["fix"]
    assert "vllm_context: " in fix
    shorter = int(fix.split("vllm_context: ")[1].split(")")[0])
    assert make_plan(model, nodes(2), context=shorter)["fits"]
    assert not make_plan(model, nodes(2), context=shorter + 2048)["fits"]
    assert make_plan(model, nodes(2), context=131072, kv_cache_dtype="fp8")["fits"] is ("fp8" in fix)


def test_between_comfort_and_ceiling_is_a_warning() -> None:
    plan = make_plan(llama(100, 8192), nodes(2))
    worst = max(row["footprint_bytes"] for row in plan["memory"]["nodes"])
    assert 90 * GIB < worst <= 95 * GIB
    assert plan["fits"]
    assert "footprint-near-the-limit" in ids(plan, "warning")
    assert plan["memory"]["gpu_memory_utilization"] == pytest.approx(0.781)
    three = make_plan(llama(100, 8192), nodes(3))
    assert len(three["placement"]["nodes"]) == 3, "comfort before fewer nodes"


def test_memory_in_use_counts() -> None:
    plan = make_plan(llama(), nodes(1, memory_available_bytes=60 * GIB))
    assert plan["fits"]
    assert plan["memory"]["gpu_memory_utilization"] * SPARK < 58 * GIB
    assert "memory-in-use" in ids(plan, "warning")
    tight = make_plan(llama(), nodes(1, memory_available_bytes=15 * GIB))
    assert not tight["fits"]
    assert "free memory on spark1" in tight["findings"][0]["fix"]


def test_asked_share_that_is_not_available() -> None:
    plan = make_plan(llama(), nodes(1, memory_available_bytes=60 * GIB), gpu_memory_utilization=0.8)
    assert not plan["fits"]
    assert "less-available-than-asked" in ids(plan, "error")


def test_asked_share_that_leaves_too_little() -> None:
    plan = make_plan(llama(), nodes(1), gpu_memory_utilization=0.97)
    assert "little-left-for-the-system" in ids(plan, "warning")


def test_asked_cache_is_the_cache() -> None:
    plan = make_plan(llama(), nodes(1), kv_cache_memory_bytes=8 * GIB, context=8192)
    row = plan["memory"]["nodes"][0]
    assert row["kv_bytes"] == 8 * GIB
    assert plan["memory"]["concurrency"] == pytest.approx(8 * GIB / (8192 * 131072))
    assert plan["memory"]["kv_tokens"] == 8 * GIB // 131072


def test_asked_cache_that_is_too_small() -> None:
    plan = make_plan(llama(), nodes(1), kv_cache_memory_bytes=1 * GIB, context=131072)
    assert not plan["fits"]
    assert "cache-too-small" in ids(plan, "error")
    assert f"vllm_context: {plan['memory']['largest_context']}" in plan["findings"][0]["fix"]
    shorter = plan["memory"]["largest_context"]
    assert make_plan(llama(), nodes(1), kv_cache_memory_bytes=1 * GIB, context=shorter)["fits"]


def test_asked_concurrency_must_fit() -> None:
    plan = make_plan(llama(), nodes(1), context=131072, concurrency=6)
    assert not plan["fits"]
    assert "vllm_concurrency: 5" in plan["findings"][0]["fix"]
    assert make_plan(llama(), nodes(1), context=131072, concurrency=5)["fits"]


def test_layers_as_the_user_splits_them() -> None:
    asked = {"VLLM_PP_LAYER_PARTITION": "50,30"}
    plan = make_plan(llama(80, 8192), nodes(2), extra_env=asked)
    assert [row["layers"] for row in plan["memory"]["nodes"]] == [[0, 50], [50, 80]]


def test_stage_weights_add_up_to_the_whole() -> None:
    one = make_plan(llama(33), nodes(1))["memory"]["nodes"]
    three = make_plan(llama(33), nodes(3), placement="pipeline")["memory"]["nodes"]
    assert sum(row["weight_bytes"] for row in three) == pytest.approx(one[0]["weight_bytes"], rel=1e-6)


def test_architecture_that_cannot_be_cut() -> None:
    model = llama(architectures=["Phi4MMForCausalLM"])
    auto = make_plan({**model, "weight_bytes": 150 * GIB}, nodes(2))
    assert auto["placement"]["kind"] == "single"
    asked = make_plan(model, nodes(2), placement="pipeline")
    assert not asked["fits"]
    assert "pipeline-not-supported" in ids(asked, "error")
    assert "cannot cut" in asked["placement"]["reason"]
    assert make_plan(model, nodes(2))["fits"], "one node is no pipeline"


@pytest.mark.parametrize(
    ("wishes", "warned"),
    [
        ({"vllm_version": "0.32.0"}, True),
        ({"vllm_version": "0.33.0"}, False),
        ({"vllm_version": "0.33.0", "extra_args": ["--load-format", "fastsafetensors"]}, True),
    ],
)
def test_drafts_in_a_pipeline(wishes: dict[str, Any], warned: bool) -> None:
    speculative = {"method": "mtp", "num_tokens": 2}
    model = known("Qwen3.6-27B-FP8")
    plan = make_plan(model, nodes(2), placement="pipeline", speculative=speculative, **wishes)
    assert ("draft-in-a-pipeline" in ids(plan, "warning")) is warned
    alone = make_plan(model, nodes(1), speculative=speculative, **wishes)
    assert "draft-in-a-pipeline" not in ids(alone)


def test_own_drafts_are_loaded_when_asked() -> None:
    model = known("Qwen3.6-27B-FP8")
    asked = make_plan(model, nodes(1), speculative={"method": "mtp", "num_tokens": 2})
    plain = make_plan(model, nodes(1))
    rows = [plan["memory"]["nodes"][0] for plan in (asked, plain)]
    assert rows[0]["overhead_bytes"] > rows[1]["overhead_bytes"] + GIB // 4
    assert asked["speed"]["roofline_tokens_per_second"] > plain["speed"]["roofline_tokens_per_second"]


def test_assumed_nodes_are_said_to_be() -> None:
    assert "nodes-assumed" in ids(make_plan(llama(), ["a"]))
    assert "nodes-assumed" not in ids(make_plan(llama(), nodes(1)))


@pytest.mark.parametrize(
    ("wishes", "count", "field", "words"),
    [
        ({"contxt": 5}, 1, "contxt", "context"),
        ({"context": -1}, 1, "context", "expected"),
        ({"context": 10**12}, 1, "context", "expected"),
        ({"context": 200_000}, 1, "context", "131072"),
        ({"gpu_memory_utilization": 1.5}, 1, "gpu_memory_utilization", "expected"),
        ({"concurrency": 0}, 1, "concurrency", "expected"),
        ({"reserve_bytes": 200 * GIB}, 1, "reserve_bytes", "less than"),
        ({"placement": "everywhere"}, 1, "placement", "single"),
        ({"placement": "tensor"}, 1, "placement", "two nodes"),
        ({"placement": "pipeline"}, 1, "placement", "two nodes"),
        ({"placement": "tensor"}, 3, "placement", "2, 4, 8"),
        ({"placement": "pipeline"}, 40, "placement", "32"),
        ({"launcher": "slurm"}, 1, "launcher", "ray"),
        ({"launcher": "mp", "placement": "pipeline", "vllm_version": "0.11.0"}, 2, "launcher", "0.12"),
        ({"extra_env": {"VLLM_PP_LAYER_PARTITION": "a,b"}, "placement": "pipeline"}, 2, "PARTITION", "a,b"),
        ({"extra_env": {"VLLM_PP_LAYER_PARTITION": "1,2"}, "placement": "pipeline"}, 2, "partition", "32"),
    ],
)
def test_refusals_name_the_field(wishes: dict[str, Any], count: int, field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(llama(), nodes(count), **wishes)
    assert field in caught.value.field
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        None,
        [],
        {},
        {"id": "x"},
        {"id": "x", "config": None},
        {"id": "x", "config": {}},
        {"id": "x", "config": []},
        {"id": "x", "config": "{}"},
        {"id": "x", "config": {"architectures": ["LlamaForCausalLM"]}},
        {"id": "x", "config": {**llama()["config"], "num_hidden_layers": -3}},
        {"id": "x", "config": {**llama()["config"], "hidden_size": "many"}},
        {**llama(), "weight_bytes": -5},
    ],
)
def test_models_that_make_no_sense(model: Any) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(model, nodes(1))
    assert caught.value.field.startswith("model")


def test_unknown_architecture_has_a_bounded_answer() -> None:
    plan = make_plan(llama(architectures=["NobodyForCausalLM"], model_type="nobody"), nodes(1))
    check_contract(plan)
    assert any("unknown" in name for name in ids(plan))


@pytest.mark.parametrize(
    ("costs", "fixed", "expected"),
    [
        ([1] * 10, [0, 0], (5, 5)),
        ([1] * 10, [4, 0], (3, 7)),
        ([1] * 10, [0, 0, 6], (5, 4, 1)),
        ([5, 1, 1, 1, 1, 1], [0, 0], (1, 5)),
        ([1, 1, 1], [0, 0, 0], (1, 1, 1)),
    ],
)
def test_balanced_split(costs: list[float], fixed: list[float], expected: tuple[int, ...]) -> None:
    sizes = balanced(costs, fixed)
    bounds = [sum(sizes[:stage]) for stage in range(len(sizes) + 1)]
    loads = [sum(costs[a:b]) + fixed[i] for i, (a, b) in enumerate(pairwise(bounds))]
    other = [sum(expected[:stage]) for stage in range(len(expected) + 1)]
    best = [sum(costs[a:b]) + fixed[i] for i, (a, b) in enumerate(pairwise(other))]
    assert sum(sizes) == len(costs)
    assert max(loads) <= max(best) + 1e-6


FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(
    name=st.sampled_from(sorted(MODELS)),
    contexts=st.tuples(st.integers(1, 32768), st.integers(1, 32768)),
    count=st.integers(1, 4),
    dtype=st.sampled_from(["auto", "fp8"]),
)
def test_more_context_never_needs_less(name: str, contexts: tuple[int, int], count: int, dtype: str) -> None:
    fewer, more = (
        make_plan(known(name), nodes(4), context=tokens, kv_cache_dtype=dtype, placement="single")
        for tokens in sorted(contexts)
    )
    for less, full in zip(fewer["memory"]["nodes"], more["memory"]["nodes"], strict=True):
        assert less["footprint_bytes"] <= full["footprint_bytes"]
    assert fewer["fits"] or not more["fits"]


@FEW
@given(
    layers=st.integers(8, 120),
    hidden=st.sampled_from([4096, 8192, 12288]),
    fewer=st.integers(1, 5),
    more=st.integers(1, 4),
    context=st.integers(1024, 131072),
    wish=st.sampled_from([None, "pipeline"]),
)
def test_more_nodes_never_make_a_fitting_plan_unfit(
    layers: int, hidden: int, fewer: int, more: int, context: int, wish: str | None
) -> None:
    wishes = {"placement": wish} if wish and fewer > 1 else {}
    small = make_plan(llama(layers, hidden), nodes(fewer), context=context, **wishes)
    large = make_plan(llama(layers, hidden), nodes(min(fewer + more, layers)), context=context, **wishes)
    assert large["fits"] or not small["fits"]


@FEW
@given(name=st.sampled_from(sorted(MODELS)), count=st.integers(1, 3))
def test_plans_are_deterministic(name: str, count: int) -> None:
    once, again = (make_plan(known(name), nodes(count)) for _time in range(2))
    assert json.dumps(once) == json.dumps(again)
