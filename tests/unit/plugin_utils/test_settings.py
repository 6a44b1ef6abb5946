# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wrong settings are named, all at once, before anything is touched."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.settings import complaints, wishes_of

PAIR = ("spark-1", "spark-2")


def complain(variables, others=None, play=PAIR, known=("vllm_model", "vllm_nodes", "vllm_api_key", "fabric_address")):
    hosts = {"spark-1": variables, "spark-2": variables if others is None else others}
    return complaints("spark-1", lambda name: hosts[name], PAIR, play, known)


GOOD = {"vllm_model": "Qwen/Qwen3-8B", "vllm_nodes": list(PAIR), "vllm_launcher": "mp", "inventory_hostname": "spark-1"}


def test_good_settings_raise_no_complaint():
    assert complain(GOOD) == []
    assert complain({"vllm_model": "/srv/models/x"}) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"vllm_model": ""}, "vllm_model: expected a repository"),
        ({"vllm_model": None}, "vllm_model: expected a repository"),
        ({"vllm_model": ["a"]}, "vllm_model: expected text"),
        ({"vllm_placement": "tripod"}, "vllm_placement: expected one of single, pipeline, tensor"),
        ({"vllm_launcher": "slurm"}, "vllm_launcher: expected one of ray, mp"),
        ({"vllm_context": -1}, "vllm_context: expected"),
        ({"vllm_version": 0.25}, "vllm_version: expected a vLLM version"),
        ({"vllm_nodes": ["spark-1", "spark-9"]}, "vllm_nodes: spark-9 not in the inventory (it has spark-1, spark-2)"),
        ({"vllm_nodes": ["spark-1", "spark-1"]}, "vllm_nodes: a node stands in it twice"),
        ({"vllm_nodes": ["spark-2"]}, "vllm_nodes: spark-1 itself is not among spark-2"),
        ({"vllm_nodes": "spark-1"}, "vllm_nodes: expected a list"),
        ({"vllm_contxt": 4096}, "vllm_contxt: there is no such variable; did you mean vllm_context?"),
        ({"fabric_adress": "x"}, "fabric_adress: there is no such variable; did you mean fabric_address?"),
    ],
)
def test_each_slip_is_named(change, text):
    found = complain(GOOD | change)
    assert any(message.startswith(text) for message in found), found


def test_all_slips_come_at_once():
    assert len(complain(GOOD | {"vllm_model": "", "vllm_placement": "x", "vllm_typo_": 1})) == 3


def test_a_node_left_out_of_the_run_is_told():
    assert "left out of this run" in complain(GOOD, play=["spark-1"])[0]


def test_nodes_that_disagree_are_told():
    found = complain(GOOD, others=GOOD | {"vllm_nodes": ["spark-2", "spark-1"]})
    assert found == ["vllm_nodes: spark-1 and spark-2 do not name the same nodes in the same order"]


def test_wishes_are_found_by_their_variables_and_empty_ones_left_out():
    variables = {"vllm_context": 4096, "vllm_version": "0.32.0", "vllm_image": "", "vllm_concurrency": None, "other": 1}
    assert wishes_of(variables) == {"context": 4096, "vllm_version": "0.32.0"}
