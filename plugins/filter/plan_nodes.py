# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_nodes
short_description: The nodes of a deployment as the plan takes them
version_added: 0.1.0
description:
  - Puts together what M(dgx_spark.vllm.node_facts) found on each node and what the inventory says of its fabric.
  - The fabric is what C(fabric_address) or C(fabric_interface) of a node say, else a subnet that all nodes share and
    that is not the LAN of the default route, ConnectX ports first.
positional: _input, nodes
options:
  _input:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  nodes:
    description: Names of the nodes of the deployment, the head first.
    type: list
    elements: str
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
nodes: "{{ hostvars | dgx_spark.vllm.plan_nodes(['spark-1', 'spark-2']) }}"
"""

RETURN = r"""
_value:
  description:
    - Name, memory_total_bytes, fabric_address, fabric_interface and rdma_devices of each node.
      Fields of the fabric are empty where no fabric was found.
    - Memory that happens to be in use now is not part of it, so that the plan of a running deployment stays the same.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.fabric import FabricError, fabric_links


def plan_nodes(hostvars, nodes):
    hosts = {
        name: {
            "facts": hostvars[name]["vllm_node"],
            "fabric_address": hostvars[name].get("fabric_address") or "",
            "fabric_interface": hostvars[name].get("fabric_interface") or "",
        }
        for name in nodes
    }
    try:
        links = fabric_links(hosts, nodes)
    except FabricError as error:
        raise AnsibleFilterError(str(error)) from error
    return [
        {
            "name": name,
            "memory_total_bytes": hosts[name]["facts"]["memory"]["total_bytes"],
            "fabric_address": links[name].address if name in links else "",
            "fabric_interface": links[name].interface if name in links else "",
            "rdma_devices": list(links[name].rdma_devices) if name in links else [],
        }
        for name in nodes
    ]


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"plan_nodes": plan_nodes}
