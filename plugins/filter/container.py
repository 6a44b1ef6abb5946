# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: container
short_description: The container of one node, as a plan wants it
version_added: 0.1.0
description:
  - Turns a plan into the words of C(docker run) for one node. The container runs as the serving user without
    capabilities and reads its secrets from a file, so that neither unit nor C(docker inspect) shows them.
positional: _input, node, settings, nodes, contents
options:
  _input:
    description: The plan.
    type: dict
    required: true
  node:
    description: Name and facts of the node, as C({name, facts}).
    type: dict
    required: true
  settings:
    description: C(deployment), C(model), C(image), C(api_address), C(api_port), C(cache), C(cluster_timeout_seconds).
    type: dict
    required: true
  nodes:
    description: The nodes of the deployment, as P(dgx_spark.vllm.plan_nodes#filter) returns them.
    type: list
    elements: dict
    required: true
  contents:
    description: What the container will read below C(/spark). A change of it changes the fingerprint.
    type: raw
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
container: "{{ plan | dgx_spark.vllm.container({'name': 'spark-1', 'facts': node}, settings, nodes, contents) }}"
"""

RETURN = r"""
_value:
  description:
    - C(argv), the words of C(docker run); C(command), what runs inside; C(fingerprint), the label by which a
      container made from another plan is told apart; C(role), what the node does.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils import container as containers


def container(plan, node, settings, nodes, contents):
    facts = node["facts"]
    links = {entry["name"]: entry for entry in nodes}
    runtime = facts["nvidia"]["hook"] or "nvidia" in facts["docker"]["runtimes"] or not facts["nvidia"]["cdi"]
    try:
        return containers.container(
            plan,
            containers.Node(
                name=node["name"],
                uid=facts["user"]["uid"],
                gid=facts["user"]["gid"],
                home=facts["user"]["home"],
                docker=facts["docker"]["path"] or "/usr/bin/docker",
                gpu="runtime" if runtime else "cdi",
                rdma=bool(links[node["name"]]["rdma_devices"]),
            ),
            containers.Settings(**settings),
            {name: entry["fabric_address"] for name, entry in links.items()},
            contents,
        )
    except containers.ContainerError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"container": container}
