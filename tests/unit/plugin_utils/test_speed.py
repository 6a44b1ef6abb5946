# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decode speed against what has been published, and the shape of the formula."""

from __future__ import annotations

import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.demand import decoding_of
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.speed import Decoding, Speed, decode_speed
from hypothesis import given
from hypothesis import strategies as st

MODELS = Path(__file__).parents[1] / "fixtures" / "speed_models.json"
ROWS = knowledge("speed")["measurements"]


@cache
def decoding(name: str, kv_cache_dtype: str) -> Decoding:
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    return decoding_of(read_checkpoint({"id": name, **models[name]}), kv_cache_dtype)


def predicted(row: dict[str, Any]) -> Speed:
    return decode_speed(
        decoding(row["config"], row.get("kv_cache_dtype", "auto")),
        273,
        row.get("pipeline", 1),
        row.get("tensor", 1),
        row.get("depth"),
        row.get("enforce_eager", False),
    )


def test_published_figures() -> None:
    """The bar: 85 of 100 inside their range, half of them within 15 percent of what is expected."""
    found = [(row, predicted(row)) for row in ROWS]
    inside = [speed.low <= row["tokens_per_second"] <= speed.high for row, speed in found]
    errors = [abs(speed.expected / row["tokens_per_second"] - 1) for row, speed in found]
    assert len(found) >= 50
    assert sum(inside) / len(inside) >= 0.85
    assert statistics.median(errors) <= 0.15


def test_no_family_is_left_out() -> None:
    """Not only the average: each storage format has its median within a quarter."""
    by_format: dict[str, list[float]] = {}
    for row in ROWS:
        speed = predicted(row)
        key = decoding(row["config"], "auto").format
        by_format.setdefault(key, []).append(abs(speed.expected / row["tokens_per_second"] - 1))
    assert {"none", "fp8", "nvfp4", "mxfp4", "int4", "mixed"} <= set(by_format)
    for key, errors in by_format.items():
        assert statistics.median(errors) <= (0.30 if key == "mxfp4" else 0.25), key


def test_every_measurement_names_its_source() -> None:
    sources = knowledge("speed")["sources"]
    assert all(row["source"] in sources for row in ROWS)


def test_ranges_are_no_wider_than_a_factor_of_two() -> None:
    for spread in knowledge("speed")["model"]["spread"].values():
        assert spread["low"] < 1 < spread["high"]
        assert spread["high"] / spread["low"] <= 2


DENSE = Decoding(0, 16_000_000_000, "none", {"attention": 36, "mlp": 36}, 147_456)


def test_pipeline_adds_hops_and_tensor_divides() -> None:
    one, pipeline, tensor = (decode_speed(DENSE, 273, *layout).expected for layout in ((1, 1), (2, 1), (1, 2)))
    assert 0.9 * one < pipeline < one
    assert 1.4 * one < tensor < 2 * one


def test_depth_slows() -> None:
    near, far = (decode_speed(DENSE, 273, depth_tokens=depth) for depth in (0, 131_072))
    assert far.expected < near.expected / 1.8
    assert far.bytes_per_token - near.bytes_per_token == 131_072 * 147_456


def test_what_it_is_bound_by() -> None:
    assert decode_speed(DENSE, 273).bound_by == "memory bandwidth"
    tiny = Decoding(0, 10_000_000, "none", {"attention": 24, "mlp": 24})
    assert decode_speed(tiny, 273).bound_by == "launches"
    assert decode_speed(tiny, 273, tensor=2).bound_by == "the link"


def test_formats_nobody_measured_have_an_answer() -> None:
    unknown = Decoding(8_000_000_000, 0, "int3", {"attention": 36})
    assert 0 < decode_speed(unknown, 273).expected < decode_speed(unknown, 273).roofline


def test_contract_keys() -> None:
    speed = decode_speed(DENSE, 273).as_dict()
    assert set(speed) >= {
        "decode_tokens_per_second",
        "roofline_tokens_per_second",
        "bytes_per_token",
        "bound_by",
    }
    assert list(speed["decode_tokens_per_second"]) == ["low", "expected", "high"]


@given(
    quantized=st.integers(0, 10**12),
    plain=st.integers(10**6, 10**12),
    bandwidth=st.floats(50, 5000),
    stages=st.integers(1, 8),
    kind=st.sampled_from(["none", "fp8", "nvfp4", "mxfp4", "mixed", "int4", "gguf"]),
)
def test_order(quantized: int, plain: int, bandwidth: float, stages: int, kind: str) -> None:
    cost = Decoding(quantized, plain, kind, {"attention": 32, "moe": 32})
    speed = decode_speed(cost, bandwidth, stages)
    assert 0 < speed.low <= speed.expected <= speed.high
    assert speed.expected <= speed.roofline
    assert speed.high <= 2 * speed.low
