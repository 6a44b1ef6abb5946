# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter ``diagnose`` as Ansible calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.filter import diagnose as module

_FILTER = module.FilterModule().filters()["diagnose"]
_LINE = "ERROR 09-01 12:00:01 [core.py:1330] ValueError: No available memory for the cache blocks."


class _Text(str):
    """Stands for the tagged texts of Ansible."""


def test_the_result_is_plain_json():
    result = _FILTER({"logs": {_Text("head"): _Text(_LINE)}, "config": {"flags": _Text("--max-model-len 4096")}})
    assert json.loads(json.dumps(result)) == result
    assert result["verdict"] == "fault"
    assert result["findings"][0]["id"] == "kv-cache-none"
    assert all(type(value) in (str, list) for value in result["findings"][0].values())


def test_context_fills_what_the_evidence_lacks():
    body = {"choices": [{"message": {"content": "<think>x</think>y"}, "finish_reason": "stop"}]}
    told = _FILTER({"response": body}, flags="--reasoning-parser-plugin /m/p.py")
    assert told["findings"][0]["id"] == "think-leak-bundled-parser"


@pytest.mark.parametrize(
    ("evidence", "named"),
    [
        ("a log", "mapping of logs"),
        ({"logs": "a log"}, "logs"),
        ({"state": ["x"]}, "state"),
        ({"response": 3}, "response"),
        ({"log": {}}, "log"),
    ],
)
def test_bad_input_is_named(evidence: Any, named: str):
    with pytest.raises(AnsibleFilterError, match=named):
        _FILTER(evidence)


def test_the_documentation_is_complete():
    told = yaml.safe_load(module.DOCUMENTATION)
    assert set(told["options"]) == {"_input", "model", "vllm", "image", "flags", "thinking"}
    contains = yaml.safe_load(module.RETURN)["_value"]["contains"]
    finding = _FILTER({"logs": {"head": _LINE}})["findings"][0]
    assert set(contains["findings"]["contains"]) == set(finding)
    assert yaml.safe_load(module.EXAMPLES)
