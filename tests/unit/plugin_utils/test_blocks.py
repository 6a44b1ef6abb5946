"""Tables of building blocks: expressions, names of the same number, and rows that hold together."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.blocks import (
    Dimensions,
    expression,
    model_row,
    tensors,
    unknown_row,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge

ROWS = sorted(set(knowledge("models")) - {"about", "unknown"})
PARTS = ("mixers", "mlps")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("a", 5),
        ("a*b", 35),
        ("2*a + b", 17),
        ("a*b - b", 28),
        ("b/2", 3),
        ("a*b/2 + 1", 18),
        ("a*missing", None),
        ("missing/2", None),
        ("a/zero", None),
    ],
)
def test_expressions(text: str, value: int | None) -> None:
    assert Dimensions({"a": 5, "b": 7, "zero": 0}).value(expression(text)) == value


def test_order_of_what_is_asked() -> None:
    """A rule of the family, then the file's own key, its other names, the class's default, a formula."""
    raw = {"n_embd": 64, "num_attention_heads": 4, "head_dim": None}
    assert Dimensions(raw).get("hidden_size") == 64
    assert Dimensions(raw).get("head_dim") == 16
    assert Dimensions(raw, {"head_dim": ["3"]}).get("head_dim") == 3
    assert Dimensions({**raw, "head_dim": 8}, None, {"head_dim": 5}).get("head_dim") == 8
    assert Dimensions({"num_attention_heads": 4}, None, {"head_dim": 5}).get("head_dim") == 5
    assert Dimensions(raw, None, {"head_dim": 5}).get("head_dim") == 16  # null in the file is not the default


def test_conditions_of_alternatives() -> None:
    rules: dict[str, list[Any]] = {"kv": ["8 | if wide", "1 | unless wide"]}
    assert Dimensions({"wide": True}, rules).get("kv") == 8
    assert Dimensions({}, rules).get("kv") == 1


def test_circles_end() -> None:
    rules: dict[str, list[Any]] = {"a": ["b"], "b": ["a"]}
    assert Dimensions({}, rules).get("a") is None
    assert Dimensions({"b": 2}, rules).get("a") == 2


@pytest.mark.parametrize("name", ROWS)
def test_rows_hold_together(name: str) -> None:
    """Every block that a row names exists, and every tensor of it can be read."""
    found = model_row(name)
    assert found is not None
    row = found[1]
    assert row["family"]
    references = [block for part in PARTS for blocks in row[part].values() for block in blocks]
    recipe = row.get("mtp", {})
    references += [*row["layer"], *row["top"], *recipe.get("extra", ()), *recipe.get("once", ())]
    tensors(references, Dimensions({}), True)
    assert {"dense", "sparse"} >= set(row["mlps"]) or name == "deepseek_v4"


def test_row_for_the_unknown() -> None:
    assert model_row("no_such_model", "NoSuchForCausalLM") is None
    assert unknown_row()["family"] == "unknown"


def test_every_model_type_has_one_row() -> None:
    also = [other for name in ROWS for other in knowledge("models")[name].get("also", ())]
    assert len(also) == len(set(also)), sorted({other for other in also if also.count(other) > 1})
    assert not set(also) & set(ROWS), sorted(set(also) & set(ROWS))


@pytest.mark.parametrize("name", ["blocks", "models", "config_defaults", "quantization", "towers"])
def test_tables_say_where_they_come_from(name: str) -> None:
    assert knowledge(name)["about"]["source"]
    assert knowledge(name)["about"]["date"]
