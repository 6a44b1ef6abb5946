# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a plan to the container of one node: the words of ``docker run`` and what the container is told.

The container is made afresh at every start, runs as the serving user without capabilities, and reads its secrets
from files below ``/spark``, so that neither the unit nor ``docker inspect`` shows them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..module_utils.paths import CACHE_DIRECTORY, CONFIG_DIRECTORY

SPARK = "/spark"
HOME = "/cache"
HUGGING_FACE = "/huggingface"
RAY_PORT = 6379
# Ray picks random ports unless told; fixed ones can be closed to all but the peers.
RAY_FIXED_PORTS = {
    "node-manager-port": 6380,
    "object-manager-port": 6381,
    "runtime-env-agent-port": 6382,
    "metrics-export-port": 6383,
    "dashboard-agent-listen-port": 6384,
    "dashboard-agent-grpc-port": 6385,
    "min-worker-port": 10002,
    "max-worker-port": 10999,
}

Role = Literal["single", "ray_head", "ray_worker", "mp_head", "mp_worker"]


class ContainerError(ValueError):
    """A setting from which no container can be made; the message names it."""


@dataclass(frozen=True)
class Node:
    """What the container must know of its node. Addresses are IPv4 text, ids are numbers."""

    name: str
    uid: int
    gid: int
    home: str
    docker: str
    gpu: Literal["runtime", "cdi"]
    rdma: bool


@dataclass(frozen=True)
class Settings:
    """What the user decides about the container, beside the plan. Times in seconds."""

    deployment: str
    model: str
    image: str
    api_address: str
    api_port: int
    cache: str
    cluster_timeout_seconds: int


def deployment_name(model: str) -> str:
    """A name for the deployment of a model: the last part of its id or path, in characters a unit may have."""
    base = model.rstrip("/").rpartition("/")[2].partition("@")[0].lower()
    return re.sub(r"[^a-z0-9.-]+", "-", base).strip("-.")[:63].rstrip("-.")


def role_of(plan: Mapping[str, Any], node: str) -> Role:
    """What a node does in a placement: its first node is the head."""
    placement = plan["placement"]
    if node not in placement["nodes"]:
        raise ContainerError(f"vllm_nodes: the plan has no node {node!r}, only {', '.join(placement['nodes'])}")
    if len(placement["nodes"]) == 1:
        return "single"
    head = placement["nodes"][0] == node
    if placement["launcher"] == "ray":
        return "ray_head" if head else "ray_worker"
    return "mp_head" if head else "mp_worker"


def container(
    plan: Mapping[str, Any], node: Node, settings: Settings, addresses: Mapping[str, str], contents: Any
) -> dict[str, Any]:
    """The container of one node.

    ``addresses`` are the fabric addresses of the deployment's nodes by name, ``contents`` is what the container will
    read below ``/spark``; it counts for the fingerprint. Returns ``argv`` (the words of
    ``docker run``), ``command`` (what runs inside), ``fingerprint`` and ``role``.
    Raises ContainerError when several nodes are to be joined and one has no address on the fabric.
    """
    role = role_of(plan, node.name)
    names = plan["placement"]["nodes"]
    if role != "single":
        missing = [name for name in names if not addresses.get(name)]
        if missing:
            raise ContainerError(f"fabric_address: no address on the fabric is known for {', '.join(missing)}")
    command = _command(plan, node, settings, role, addresses)
    options = _options(plan, node, settings, role)
    told = json.dumps([options, settings.image, command, contents], sort_keys=True)
    fingerprint = hashlib.sha256(told.encode()).hexdigest()[:16]
    argv = [
        node.docker,
        "run",
        *options,
        "--label",
        f"dgx-spark.fingerprint={fingerprint}",
        "--entrypoint",
        "python3",
        settings.image,
        *command,
    ]
    return {"argv": argv, "command": command, "fingerprint": fingerprint, "role": role}


def _options(plan: Mapping[str, Any], node: Node, settings: Settings, role: Role) -> list[str]:
    """The options of docker run, before the image."""
    name = f"vllm-{settings.deployment}"
    options = [
        "--rm",
        "--init",
        "--name",
        name,
        "--label",
        f"dgx-spark.deployment={settings.deployment}",
        "--pull",
        "never",
        "--user",
        f"{node.uid}:{node.gid}",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--ipc",
        "host",
        "--log-driver",
        "local",
        "--log-opt",
        "max-size=20m",
        "--stop-timeout",
        "30",
    ]
    options += ["--gpus", "all"] if node.gpu == "runtime" else ["--device", "nvidia.com/gpu=all"]
    if role == "single":
        options += ["--publish", f"{settings.api_address}:{settings.api_port}:{settings.api_port}"]
    else:
        options += ["--network", "host"]
        if node.rdma:
            options += ["--device", "/dev/infiniband", "--ulimit", "memlock=-1"]
    options += [
        "--volume",
        f"{node.home}/{CONFIG_DIRECTORY}/{settings.deployment}:{SPARK}:ro",
        "--volume",
        f"{node.home}/{CACHE_DIRECTORY}:{HOME}",
        "--volume",
        f"{settings.cache}:{HUGGING_FACE}",
    ]
    if settings.model.startswith("/"):
        options += ["--volume", f"{settings.model}:{settings.model}:ro"]
    for key, value in sorted(_environment(plan, node, role).items()):
        options += ["--env", f"{key}={value}"]
    return options


def _environment(plan: Mapping[str, Any], node: Node, role: Role) -> dict[str, str]:
    """Variables of the container: its own home, then the plan's."""
    environment = {
        "HOME": HOME,
        "USER": "spark",
        "HF_HOME": HUGGING_FACE,
        "VLLM_CONFIG_ROOT": f"{SPARK}",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if role.startswith("ray"):
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": f"{SPARK}/RAY_AUTH_TOKEN.secret",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray gives its own processes 30 s to start, which a cold page cache can eat up.
            "RAY_raylet_start_wait_time_s": "120",
            # Ray starts its workers at nice 15, and vLLM is one of them.
            "RAY_worker_niceness": "0",
        }
    serve = plan["serve"]["env"]
    environment |= {key: str(value) for key, value in serve["common"].items()}
    environment |= {key: str(value) for key, value in serve["nodes"].get(node.name, {}).items()}
    return environment


def _command(
    plan: Mapping[str, Any], node: Node, settings: Settings, role: Role, addresses: Mapping[str, str]
) -> list[str]:
    """What runs inside the container: secrets first, then Ray where Ray joins the nodes, then vLLM."""
    names: Sequence[str] = plan["placement"]["nodes"]
    start = f"{SPARK}/start.py"
    serve = [
        "vllm",
        "serve",
        settings.model,
        *plan["serve"]["args"],
        *plan["serve"].get("node_args", {}).get(node.name, []),
    ]
    if role != "mp_worker":
        serve += ["--host", "0.0.0.0" if role == "single" else settings.api_address]
    if not role.startswith("ray"):
        return [start, *serve]
    ray = [
        "python3",
        f"{SPARK}/ray_node.py",
        "head" if role == "ray_head" else "worker",
        "--address",
        addresses[node.name],
        "--head",
        addresses[names[0]],
        "--port",
        str(RAY_PORT),
    ]
    ray += [f"--{key}={value}" for key, value in RAY_FIXED_PORTS.items()]
    if role == "ray_worker":
        return [start, *ray]
    peers = [f"--node={name}={addresses[name]}" for name in names]
    return [start, *ray, *peers, "--timeout", str(settings.cluster_timeout_seconds), "--", *serve]


def node_secrets(secrets: Mapping[str, str], plan: Mapping[str, Any], node: str) -> dict[str, str]:
    """The secrets a node needs: the API key on the head alone, the Ray token only with Ray."""
    role, needed = role_of(plan, node), {"HF_TOKEN"}
    if not role.endswith("worker"):
        needed.add("VLLM_API_KEY")
    if role.startswith("ray"):
        needed.add("RAY_AUTH_TOKEN")
    return {name: value for name, value in secrets.items() if name in needed}


def systemd_command(words: Sequence[str]) -> str:
    """Words as the value of ExecStart: quoted for systemd (systemd.service(5), command lines), one option a line."""
    lines: list[str] = []
    for word in map(_systemd_word, words):
        if word.startswith("-") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return " \\\n  ".join(lines)


def _systemd_word(word: str) -> str:
    """One word, safe from systemd's specifiers, variables and quoting."""
    escaped = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace("\n", "\\n")
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./$-]+", escaped):
        return escaped
    return '"' + escaped.replace('"', '\\"') + '"'
