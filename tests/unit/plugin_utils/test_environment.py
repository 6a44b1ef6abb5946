# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Variables by version, launcher and node."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.environment import environment, known_variables
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.placement import Node

PAIR = tuple(
    Node(name, 1 << 37, None, 273.0, address, "enp1s0f0np0", ("roce0", "roce1"))
    for name, address in (("a", "192.168.100.1"), ("b", "192.168.100.2"))
)
PLAIN = (Node("a", 1 << 37), Node("b", 1 << 37))
V2, CHANNEL = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE"


@pytest.mark.parametrize(
    ("at", "launcher", "present"),
    [
        ("0.17.0", "ray", {CHANNEL}),
        ("0.19.0", "ray", {CHANNEL}),
        ("0.20.0", "ray", {CHANNEL, V2}),
        ("0.32.0", "ray", {CHANNEL, V2}),
        ("0.33.0", "ray", set()),
        ("0.32.0", "mp", set()),
    ],
)
def test_rays_executor_variables_stay_in_their_versions(at, launcher, present):
    common = environment(at, PAIR, launcher).common
    assert {V2, CHANNEL} & set(common) == present
    assert ("RAY_memory_monitor_refresh_ms" in common) is (launcher == "ray")


def test_every_node_has_its_own_address():
    nodes = environment("0.33.0", PAIR, "mp").nodes
    assert nodes["a"] == {
        "VLLM_HOST_IP": "192.168.100.1",
        "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_SOCKET_IFNAME": "enp1s0f0np0",
        "TP_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_IB_HCA": "=roce0,roce1",
    }
    assert nodes["b"]["VLLM_HOST_IP"] == "192.168.100.2"


def test_what_nobody_looked_at_stays_out():
    assert environment("0.33.0", PLAIN, "ray").nodes == {"a": {}, "b": {}}


def test_one_node_needs_nothing_of_a_cluster():
    found = environment("0.32.0", PAIR[:1], "ray")
    assert dict(found.common) == {"VLLM_ENGINE_READY_TIMEOUT_S": "3600"}
    assert found.nodes == {"a": {}}


def test_the_split_is_said_only_when_it_is_not_vllms():
    assert environment("0.33.0", PAIR, "mp", (20, 16)).common["VLLM_PP_LAYER_PARTITION"] == "20,16"
    assert "VLLM_PP_LAYER_PARTITION" not in environment("0.33.0", PAIR, "mp").common


def test_the_users_own_win_and_the_unknown_is_said():
    own = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "60", "VLLM_USE_V1": "1"}
    found = environment("0.33.0", PAIR, "mp", extra=own)
    assert found.common["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "60"
    assert [finding.id for finding in found.findings] == ["variable-unknown"]
    assert "VLLM_USE_V1" in found.findings[0].what


@pytest.mark.parametrize("name", ["HF_TOKEN", "VLLM_API_KEY", "MY_PASSWORD", "VLLM_HOST_IP"])
def test_secrets_and_addresses_do_not_belong_there(name):
    with pytest.raises(InputError) as caught:
        environment("0.33.0", PAIR, "mp", extra={name: "x"})
    assert caught.value.field == "extra_env"


@pytest.mark.parametrize("at", ["0.19.0", "0.22.0", "0.25.1", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("launcher", ["ray", "mp"])
def test_only_variables_the_version_reads(at, launcher):
    found = environment(at, PAIR, launcher, (20, 16))
    names = {*found.common, *found.nodes["a"]}
    assert {name for name in names if name.startswith("VLLM_")} <= known_variables(at)
    assert names == set(found.reasons)
