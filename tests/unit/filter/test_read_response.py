# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter ``read_response`` as Ansible calls it."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.filter import read_response as module

_FILTER = module.FilterModule().filters()["read_response"]


def test_a_good_answer_gives_no_finding():
    assert _FILTER({"choices": [{"message": {"content": "Four."}, "finish_reason": "stop"}]}) == []


def test_context_sharpens_the_finding():
    body = {"choices": [{"message": {"content": None, "reasoning": "Hello."}, "finish_reason": "stop"}]}
    request = {"chat_template_kwargs": {"enable_thinking": False}}
    assert [finding["id"] for finding in _FILTER(body)] == ["reasoning-on-plain-answer"]
    told = _FILTER(body, request=request, reasoning_parser="deepseek_r1")
    assert told[0]["id"] == "parser-swallows-unthinking"
    assert "deepseek_r1" in told[0]["what"]


def test_raw_text_of_a_proxy_is_read():
    assert _FILTER("502 Bad Gateway")[0]["id"] == "server-not-there"


def test_bad_input_is_named():
    with pytest.raises(AnsibleFilterError, match="not int"):
        _FILTER(3)


def test_the_documentation_is_complete():
    told = _FILTER({"choices": []})
    assert set(yaml.safe_load(module.RETURN)["_value"]["contains"]) == set(told[0])
    assert set(yaml.safe_load(module.DOCUMENTATION)["options"]) >= {"_input", "request", "thinking"}
    assert yaml.safe_load(module.EXAMPLES)
