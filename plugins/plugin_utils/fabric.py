# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which interface of each node is the fast link to the others. Never the LAN by accident."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Bridges and tunnels that container engines and VPNs make: they reach no other node.
VIRTUAL = ("lo", "docker", "br-", "veth", "virbr", "tailscale", "wg", "tun", "zt", "cni", "flannel", "vxlan")
CONNECTX_DRIVER = "mlx5_core"


class FabricError(ValueError):
    """A fabric setting that no interface of the node answers to; the message names it."""


@dataclass(frozen=True, slots=True)
class Link:
    """One address of a node that may be its end of the fabric."""

    interface: str
    address: str
    network: ipaddress.IPv4Network
    speed_mbps: int
    connectx: bool
    rdma_devices: tuple[str, ...]

    def merit(self) -> tuple[bool, int]:
        """ConnectX before others, then the faster one."""
        return self.connectx, self.speed_mbps


def links(facts: Mapping[str, Any]) -> list[Link]:
    """The IPv4 addresses of a node's interfaces with a carrier, virtual ones left out, in the node's own order."""
    found = []
    for interface in facts["interfaces"]:
        if not interface["carrier"] or interface["name"].startswith(VIRTUAL):
            continue
        for entry in interface["addresses"]:
            address = ipaddress.ip_interface(f"{entry['address']}/{entry['prefix']}")
            if isinstance(address, ipaddress.IPv4Interface):
                found.append(
                    Link(
                        interface["name"],
                        str(address.ip),
                        address.network,
                        interface["speed_mbps"] or 0,
                        interface["driver"] == CONNECTX_DRIVER,
                        tuple(interface["rdma_devices"]),
                    )
                )
    return found


def chosen(name: str, facts: Mapping[str, Any], address: str, interface: str) -> Link | None:
    """The link the user named by address or interface, or None when neither is set. Raises FabricError for no match."""
    if not address and not interface:
        return None
    for link in links(facts):
        if address in ("", link.address) and interface in ("", link.interface):
            return link
    wanted = f"fabric_address {address}" if address else f"fabric_interface {interface}"
    seen = ", ".join(f"{link.interface} {link.address}" for link in links(facts)) or "none"
    raise FabricError(
        f"{wanted}: node {name} has no such interface with a carrier and an IPv4 address (it has: {seen})"
    )


def discover(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Link]:
    """The link of each node in a subnet that all nodes share, the LAN left out; empty when there is none.

    Of several shared subnets the one on ConnectX ports wins, then the fastest, then the lowest address, so that
    both ends choose the same of two twin ports.
    """
    per_node = {
        name: [link for link in links(facts) if link.interface != facts["lan"]["interface"]]
        for name, facts in nodes.items()
    }
    shared = set.intersection(*({link.network for link in candidates} for candidates in per_node.values()))
    if not shared or len(nodes) < 2:
        return {}
    by_network = {
        network: {
            name: next(link for link in candidates if link.network == network) for name, candidates in per_node.items()
        }
        for network in sorted(shared)
    }
    best = max(by_network, key=lambda network: min(link.merit() for link in by_network[network].values()))
    return by_network[best]


def fabric_links(hosts: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Link]:
    """The fabric of a deployment: each node's own settings first, discovery for nodes without any.

    ``hosts`` maps a name to ``{facts, fabric_address, fabric_interface}``. Nodes without a link are left out.
    """
    found = {
        name: chosen(name, hosts[name]["facts"], hosts[name]["fabric_address"], hosts[name]["fabric_interface"])
        for name in names
    }
    discovered = {} if all(found.values()) else discover({name: hosts[name]["facts"] for name in names})
    complete = {name: link or discovered.get(name) for name, link in found.items()}
    return {name: link for name, link in complete.items() if link}
