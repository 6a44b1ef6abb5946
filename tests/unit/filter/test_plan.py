# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan filters as Ansible calls them: tagged strings, lazy containers, errors that name the field."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template
from ansible_collections.dgx_spark.vllm.plugins.filter import plan as plan_filter
from ansible_collections.dgx_spark.vllm.plugins.filter import plan_page as page_filter
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import Wishes

PLAN = plan_filter.FilterModule().filters()["plan"]
PAGE = page_filter.FilterModule().filters()["plan_page"]

MODEL = {
    "id": "org/plain",
    "config": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
    },
}


def kinds(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {value.__class__}.union(*map(kinds, value), *map(kinds, value.values()))
    if isinstance(value, list):
        return {value.__class__}.union(*map(kinds, value))
    return {value.__class__}


def test_plain_types_all_the_way_down() -> None:
    plan = PLAN(MODEL, ["spark1"])
    assert kinds(plan) <= {dict, list, str, int, float, bool, type(None)}
    assert plan["fits"]


def test_values_as_a_play_has_them() -> None:
    """Ansible's loader tags every string, number and container with its origin."""
    loaded = DataLoader().load(
        json.dumps(
            {
                "model": MODEL,
                "nodes": [{"name": "spark1", "memory_total_bytes": 130663817216}, "spark2"],
                "wishes": {"context": "16384", "placement": "tensor", "gpu_memory_utilization": "0.8"},
            }
        )
    )
    assert kinds(loaded["wishes"]) - {dict, list, str}, "tagged, or there is nothing to test"
    plan = PLAN(loaded["model"], loaded["nodes"], **loaded["wishes"])
    assert kinds(plan) <= {dict, list, str, int, float, bool, type(None)}
    assert plan["placement"]["kind"] == "tensor"
    assert plan["memory"]["context"] == 16384
    assert plan["memory"]["gpu_memory_utilization"] == 0.8
    assert json.loads(PAGE(plan, trust_as_template("json"))) == plan


@pytest.mark.parametrize(
    ("model", "nodes", "wishes", "field"),
    [
        (MODEL, ["a"], {"context": -4}, "context"),
        (MODEL, ["a"], {"kontext": 4}, "kontext"),
        (MODEL, [], {}, "nodes"),
        (MODEL, [{"name": "a", "memory_total_bytes": "x"}], {}, "nodes[0].memory_total_bytes"),
        ("Qwen/Qwen3-8B", ["a"], {}, "model"),
        ({"id": "x"}, ["a"], {}, "model.config"),
    ],
)
def test_errors_name_the_field(model: Any, nodes: Any, wishes: dict[str, Any], field: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        PLAN(model, nodes, **wishes)
    assert str(caught.value).startswith(f"plan: {field}")


def test_documentation_lists_every_wish() -> None:
    options = yaml.safe_load(plan_filter.DOCUMENTATION)["options"]
    assert set(options) - {"_input", "nodes"} == set(Wishes.__dataclass_fields__)


def test_documentation_names_the_contract() -> None:
    returned = yaml.safe_load(plan_filter.RETURN)["_value"]["contains"]
    assert list(returned) == list(PLAN(MODEL, ["a"]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("poster",), "format"),
        (("page", 5), "width"),
        (("page", "wide"), "width"),
    ],
)
def test_page_refuses(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        PAGE(PLAN(MODEL, ["a"]), *arguments)


def test_page_wants_a_plan() -> None:
    with pytest.raises(AnsibleFilterError, match="_input"):
        PAGE({"fits": True})


def test_page_formats() -> None:
    plan = PLAN(MODEL, ["a"])
    assert PAGE(plan).splitlines()[1].startswith("FITS on a alone")
    assert PAGE(plan, "markdown").startswith("# org/plain\n")
    assert json.loads(PAGE(plan, "json")) == plan
