# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Placement over plain numbers: budgets, which nodes, in which order."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.placement import (
    GIB,
    Kind,
    Layout,
    Node,
    Told,
    budget,
    choose,
    default_node,
    read_nodes,
    utilization,
)
from hypothesis import given
from hypothesis import strategies as st

SPARK = int(121.69 * GIB)


def sparks(count: int, **facts: Any) -> tuple[Node, ...]:
    return tuple(Node(f"spark{number + 1}", SPARK, **facts) for number in range(count))


def split(total_gib: float, overhead_gib: float = 4.0) -> Any:
    """A model that divides evenly."""

    def weigh(_kind: Kind, nodes: tuple[Node, ...]) -> tuple[tuple[int, ...], None]:
        return tuple(int((total_gib / len(nodes) + overhead_gib) * GIB) for _node in nodes), None

    return weigh


def place(total_gib: float, count: int, wish: Kind | None = None, told: Told | None = None, **facts: Any) -> Layout:
    return choose(sparks(count, **facts), wish, told or Told(), split(total_gib), 64)[0]


@pytest.mark.parametrize(
    ("total_gib", "nodes", "kind", "used", "fits"),
    [
        (20, 1, "single", 1, True),
        (20, 2, "single", 1, True),  # one node if it fits
        (99, 2, "single", 1, True),
        (101, 2, "pipeline", 2, True),  # 105 GiB are beyond 0.85 of a Spark
        (101, 1, "single", 1, False),
        (170, 2, "pipeline", 2, True),  # 89 GiB a node
        (180, 2, "pipeline", 2, True),  # 94 GiB: with a warning
        (184, 2, "pipeline", 2, False),  # 96 GiB
        (180, 3, "pipeline", 3, True),  # three in comfort rather than two with a warning
        (170, 4, "pipeline", 2, True),  # as few as fit
        (300, 4, "pipeline", 4, True),
        (900, 4, "pipeline", 4, False),
    ],
)
def test_order_of_preference(total_gib: float, nodes: int, kind: str, used: int, fits: bool) -> None:
    layout = place(total_gib, nodes)
    assert (layout.kind, len(layout.nodes), layout.fits) == (kind, used, fits)


def test_warned_between_comfort_and_ceiling() -> None:
    assert place(170, 2).comfortable
    assert not place(180, 2).comfortable


@pytest.mark.parametrize(
    ("told", "fits"),
    [
        (Told(), False),
        (Told(gpu_memory_utilization=0.9), True),  # 109.5 GiB
        (Told(gpu_memory_utilization=0.8), False),
        (Told(reserve_bytes=15 * GIB), True),  # 106.7 GiB
        (Told(reserve_bytes=30 * GIB), False),
        (Told(footprint_limit_bytes=105 * GIB), True),
        (Told(gpu_memory_utilization=0.9, reserve_bytes=30 * GIB), False),
    ],
)
def test_the_users_word(told: Told, fits: bool) -> None:
    """99.5 GiB a node, as a published deployment ran it with a utilization of 0.9."""
    layout = place(191, 2, "tensor", told)
    assert layout.fits is fits
    assert layout.kind == "tensor"


def test_tensor_is_a_wish_only() -> None:
    for total in (10, 100, 200, 400):
        _layout, weighed = choose(sparks(4), None, Told(), split(total), 64)
        assert all(layout.kind != "tensor" for layout in weighed)


def test_asked_pipeline_uses_all_nodes() -> None:
    assert len(place(20, 4, "pipeline").nodes) == 4


def test_asked_pipeline_takes_fewer_only_to_fit() -> None:
    """A stage more can cost more than it takes off: the last then holds nothing but what every stage pays."""

    def weigh(_kind: Kind, nodes: tuple[Node, ...]) -> tuple[tuple[int, ...], None]:
        return ((200 if len(nodes) == 3 else 50) * GIB,) * len(nodes), None

    layout, _weighed = choose(sparks(3), "pipeline", Told(), weigh, 64)
    assert (len(layout.nodes), layout.fits) == (2, True)


def test_no_stages() -> None:
    layout, weighed = choose(sparks(4), None, Told(), split(200), 1)
    assert (layout.kind, layout.fits, len(weighed)) == ("single", False, 1)


def test_a_roomier_node_is_found() -> None:
    small = Node("small", 64 * GIB)
    layout, _weighed = choose((small, *sparks(1)), None, Told(), split(80), 64)
    assert [node.name for node in layout.nodes] == ["spark1"]
    assert layout.fits


def test_what_is_available_now_is_the_last_word() -> None:
    assert place(60, 1).fits
    assert not place(60, 1, memory_available_bytes=40 * GIB).fits
    asked = Told(gpu_memory_utilization=0.9)
    assert not place(60, 1, told=asked, memory_available_bytes=40 * GIB).fits


@pytest.mark.parametrize(
    ("kind", "told", "expected"),
    [
        ("single", Told(), 0.85),
        ("pipeline", Told(), 0.74),
        ("tensor", Told(), 0.74),
        ("pipeline", Told(gpu_memory_utilization=0.82), 0.82),
        ("single", Told(reserve_bytes=SPARK // 2), 0.5),
    ],
)
def test_utilization_follows_the_budget(kind: Kind, told: Told, expected: float) -> None:
    nodes = sparks(2)
    assert utilization(nodes, budget(kind, nodes, told).comfortable_bytes) == pytest.approx(expected, abs=1e-6)


def test_one_flag_for_unlike_nodes() -> None:
    nodes = (Node("a", 100 * GIB), Node("b", 200 * GIB))
    assert utilization(nodes, (80 * GIB, 90 * GIB)) == 0.45


def test_small_machines_keep_the_share() -> None:
    """A node of 16 GiB never gets a limit of 90."""
    nodes = (Node("a", 16 * GIB), Node("b", 16 * GIB))
    assert budget("pipeline", nodes, Told()).limit_bytes == (int(0.85 * 16 * GIB),) * 2


def test_missing_figures_are_those_of_a_gb10() -> None:
    assert read_nodes(["a", {"name": "b", "bandwidth_gb_s": 500}]) == (
        Node("a", default_node().memory_total_bytes, measured=False),
        Node("b", default_node().memory_total_bytes, bandwidth_gb_s=500.0, measured=False),
    )
    assert default_node().bandwidth_gb_s == 273


def test_facts_are_kept() -> None:
    node = {
        "name": "a",
        "memory_total_bytes": 130_663_817_216.0,
        "memory_available_bytes": "125000000000",
        "fabric_address": "10.0.0.1",
        "fabric_interface": "enp1s0f0np0",
        "rdma_devices": ["rocep1s0f0"],
        "something": "else",
    }
    read = read_nodes([node])[0]
    assert read.memory_total_bytes == 130_663_817_216
    assert read.memory_available_bytes == 125_000_000_000
    assert (read.fabric_address, read.fabric_interface, read.rdma_devices) == (
        "10.0.0.1",
        "enp1s0f0np0",
        ("rocep1s0f0",),
    )
    assert read.measured


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        ([], "nodes"),
        ("spark1", "nodes"),
        ({"name": "spark1"}, "nodes"),
        (None, "nodes"),
        ([7], "nodes[0]"),
        ([{}], "nodes[0].name"),
        ([{"name": ""}], "nodes[0].name"),
        ([{"name": "a"}, {"name": "a"}], "nodes"),
        ([{"name": "a", "memory_total_bytes": -1}], "nodes[0].memory_total_bytes"),
        ([{"name": "a", "memory_total_bytes": 128}], "nodes[0].memory_total_bytes"),
        ([{"name": "a", "memory_total_bytes": "lots"}], "nodes[0].memory_total_bytes"),
        ([{"name": "a", "memory_total_bytes": True}], "nodes[0].memory_total_bytes"),
        ([{"name": "a", "memory_total_bytes": float("nan")}], "nodes[0].memory_total_bytes"),
        (
            [{"name": "a", "memory_total_bytes": 2**37, "memory_available_bytes": 2**38}],
            "memory_available_bytes",
        ),
        ([{"name": "a", "bandwidth_gb_s": 0}], "nodes[0].bandwidth_gb_s"),
    ],
)
def test_nodes_that_make_no_sense(nodes: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_nodes(nodes)
    assert field in caught.value.field


@given(
    total=st.floats(1, 1200),
    fewer=st.integers(1, 6),
    more=st.integers(0, 4),
    wish=st.sampled_from([None, "single", "pipeline"]),
    share=st.none() | st.floats(0.1, 1.0),
)
def test_more_nodes_never_make_a_fitting_plan_unfit(
    total: float, fewer: int, more: int, wish: Kind | None, share: float | None
) -> None:
    if wish == "pipeline" and fewer == 1:
        fewer = 2
    told = Told(gpu_memory_utilization=share)
    if place(total, fewer, wish, told).fits:
        assert place(total, fewer + more, wish, told).fits
