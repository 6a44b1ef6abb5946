# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fast link is found by a network that all nodes share beside the LAN, or named; never guessed."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.fabric import FabricError, discover, fabric_links


def interface(name, *addresses, carrier=True, driver=None, speed=None, rdma=()):
    return {
        "name": name,
        "carrier": carrier,
        "driver": driver,
        "speed_mbps": speed,
        "mtu": 9000,
        "rdma_devices": list(rdma),
        "addresses": [{"address": text.split("/")[0], "prefix": int(text.split("/")[1])} for text in addresses],
    }


def node(last, *more, lan="enP7s7"):
    interfaces = [
        interface("lo", "127.0.0.1/8"),
        interface("docker0", "172.17.0.1/16"),
        interface("enP7s7", f"10.0.0.{last}/24"),
        *more,
    ]
    return {"interfaces": interfaces, "lan": {"interface": lan, "address": f"10.0.0.{last}"}}


def rail(last, network="192.168.100", name="enp1s0f0np0", **more):
    return interface(
        name, f"{network}.{last}/24", **({"driver": "mlx5_core", "speed": 200000, "rdma": ["rocep1s0f0"]} | more)
    )


def host(facts, address="", interface=""):
    return {"facts": facts, "fabric_address": address, "fabric_interface": interface}


def test_the_shared_network_beside_the_lan_is_the_fabric():
    found = discover({"a": node(1, rail(1)), "b": node(2, rail(2))})
    assert {name: link.address for name, link in found.items()} == {"a": "192.168.100.1", "b": "192.168.100.2"}
    assert found["a"].rdma_devices == ("rocep1s0f0",)


def test_the_lan_and_the_bridges_of_docker_are_no_fabric_even_when_shared():
    assert discover({"a": node(1), "b": node(2)}) == {}


def test_a_port_without_carrier_does_not_count():
    assert discover({"a": node(1, rail(1)), "b": node(2, rail(2, carrier=False))}) == {}


def test_connectx_wins_over_a_faster_looking_network_and_both_ends_take_the_same_twin():
    def both(last):
        return node(
            last,
            rail(last, "10.9.9", "eth5", driver="r8127", speed=400000, rdma=()),
            rail(last, "192.168.101", "enP2p1s0f0np0"),
            rail(last),
        )

    found = discover({"a": both(1), "b": both(2)})
    assert {link.address for link in found.values()} == {"192.168.100.1", "192.168.100.2"}


def test_a_slow_end_makes_a_slow_network():
    def both(last, speed):
        return node(last, rail(last, speed=speed), rail(last, "192.168.101", "enP2p1s0f0np0"))

    found = discover({"a": both(1, 200000), "b": both(2, 10000)})
    assert found["a"].address == "192.168.101.1"


@pytest.mark.parametrize(
    ("address", "name"), [("192.168.100.2", ""), ("", "enp1s0f0np0"), ("192.168.100.2", "enp1s0f0np0")]
)
def test_what_the_inventory_names_is_taken(address, name):
    hosts = {"a": host(node(1, rail(1))), "b": host(node(2, rail(2)), address, name)}
    assert fabric_links(hosts, ["a", "b"])["b"].address == "192.168.100.2"


def test_even_the_lan_is_taken_when_named():
    hosts = {name: host(node(last), address=f"10.0.0.{last}") for name, last in (("a", 1), ("b", 2))}
    assert {link.interface for link in fabric_links(hosts, ["a", "b"]).values()} == {"enP7s7"}


def test_a_name_that_is_not_there_is_an_error_that_tells_what_is():
    hosts = {"a": host(node(1, rail(1)), address="192.168.100.9"), "b": host(node(2, rail(2)))}
    with pytest.raises(FabricError, match=r"fabric_address 192\.168\.100\.9: node a .*enp1s0f0np0 192\.168\.100\.1"):
        fabric_links(hosts, ["a", "b"])


def test_one_node_alone_has_no_fabric():
    assert fabric_links({"a": host(node(1, rail(1)))}, ["a"]) == {}
