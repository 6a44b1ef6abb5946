# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The container of each node in each placement: what runs, what it may do, what it must not show."""

from __future__ import annotations

import itertools
import shlex

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.container import (
    ContainerError,
    Node,
    Settings,
    container,
    deployment_name,
    node_secrets,
    role_of,
    systemd_command,
)

ADDRESSES = {"a": "192.168.100.1", "b": "192.168.100.2", "c": "192.168.100.3"}
SETTINGS = Settings(
    deployment="tiny",
    model="org/tiny",
    image="image:1",
    api_address="10.0.0.1",
    api_port=8000,
    cache="/home/u/.cache/huggingface",
    cluster_timeout_seconds=600,
)


def plan(names="ab", launcher="ray"):
    names = list(names)
    return {
        "placement": {"nodes": names, "launcher": launcher},
        "serve": {
            "args": ["--pipeline-parallel-size", str(len(names))],
            "node_args": {name: ["--node-rank", str(rank)] for rank, name in enumerate(names)}
            if launcher == "mp"
            else {},
            "env": {"common": {"NCCL_X": 1}, "nodes": {name: {"VLLM_HOST_IP": ADDRESSES[name]} for name in names}},
        },
    }


def make(the_plan, name="a", contents=(), settings=SETTINGS, **node):
    facts = {
        "uid": 1000,
        "gid": 1001,
        "home": "/home/u",
        "docker": "/usr/bin/docker",
        "gpu": "runtime",
        "rdma": False,
    } | node
    return container(the_plan, Node(name=name, **facts), settings, ADDRESSES, contents)


def option(argv, name):
    return [value for word, value in itertools.pairwise(argv) if word == name]


@pytest.mark.parametrize(
    ("names", "launcher", "node", "role"),
    [
        ("a", "ray", "a", "single"),
        ("ab", "ray", "a", "ray_head"),
        ("ab", "ray", "b", "ray_worker"),
        ("abc", "mp", "a", "mp_head"),
        ("abc", "mp", "c", "mp_worker"),
    ],
)
def test_the_first_node_is_the_head(names, launcher, node, role):
    assert role_of(plan(names, launcher), node) == role


def test_a_node_outside_the_plan_is_an_error():
    with pytest.raises(ContainerError, match="vllm_nodes: the plan has no node 'x'"):
        role_of(plan(), "x")


@pytest.mark.parametrize("the_plan", [plan("a"), plan("ab"), plan("ab", "mp")])
def test_the_container_runs_as_the_user_and_may_do_little(the_plan):
    argv = make(the_plan)["argv"]
    assert "--privileged" not in argv
    assert option(argv, "--user") == ["1000:1001"]
    assert option(argv, "--cap-drop") == ["ALL"]
    assert option(argv, "--security-opt") == ["no-new-privileges"]
    assert option(argv, "--pull") == ["never"]


def test_a_single_node_publishes_one_port_on_one_address_and_nothing_else():
    argv = make(plan("a"))["argv"]
    assert option(argv, "--publish") == ["10.0.0.1:8000:8000"]
    assert option(argv, "--network") == []
    assert argv[-2:] == ["--host", "0.0.0.0"]


def test_several_nodes_share_the_network_of_their_hosts():
    argv = make(plan("ab"))["argv"]
    assert option(argv, "--network") == ["host"]
    assert option(argv, "--publish") == []
    assert "VLLM_HOST_IP=192.168.100.1" in option(argv, "--env")


def test_the_ray_head_waits_for_all_nodes_then_serves():
    command = shlex.join(make(plan("abc"))["command"])
    assert "ray_node.py head --address 192.168.100.1 --head 192.168.100.1 --port 6379" in command
    assert "--node=a=192.168.100.1 --node=b=192.168.100.2 --node=c=192.168.100.3" in command
    assert command.endswith("-- vllm serve org/tiny --pipeline-parallel-size 3 --host 10.0.0.1")


def test_a_ray_worker_joins_the_head_and_serves_nothing():
    command = shlex.join(make(plan("ab"), "b")["command"])
    assert "ray_node.py worker --address 192.168.100.2 --head 192.168.100.1" in command
    assert "serve" not in command


def test_without_ray_every_node_serves_with_its_rank_and_only_the_head_listens():
    head, worker = make(plan("ab", "mp"), "a")["command"], make(plan("ab", "mp"), "b")["command"]
    assert head[1:] == [
        "vllm",
        "serve",
        "org/tiny",
        "--pipeline-parallel-size",
        "2",
        "--node-rank",
        "0",
        "--host",
        "10.0.0.1",
    ]
    assert worker[1:] == ["vllm", "serve", "org/tiny", "--pipeline-parallel-size", "2", "--node-rank", "1"]


def test_rdma_is_passed_on_only_where_it_is():
    assert "/dev/infiniband" not in make(plan("ab"))["argv"]
    argv = make(plan("ab"), rdma=True)["argv"]
    assert "/dev/infiniband" in option(argv, "--device")
    assert "memlock=-1" in option(argv, "--ulimit")


def test_a_gpu_known_to_cdi_alone_is_asked_for_by_cdi():
    assert option(make(plan("a"), gpu="runtime")["argv"], "--gpus") == ["all"]
    assert option(make(plan("a"), gpu="cdi")["argv"], "--device") == ["nvidia.com/gpu=all"]


def test_a_directory_is_mounted_read_only_at_its_own_path():
    settings = Settings(**{**SETTINGS.__dict__, "model": "/srv/models/tiny"})
    argv = make(plan("a"), settings=settings)["argv"]
    assert "/srv/models/tiny:/srv/models/tiny:ro" in option(argv, "--volume")


def test_a_node_without_an_address_on_the_fabric_is_named():
    with pytest.raises(ContainerError, match=r"fabric_address: .* b$"):
        container(plan(), Node("a", 1, 1, "/h", "docker", "runtime", False), SETTINGS, {"a": "192.168.100.1"}, [])


def test_the_fingerprint_follows_what_the_container_is_told_and_shows_none_of_it():
    first, again, other = (
        make(plan(), contents=["hush-hush"]),
        make(plan(), contents=["hush-hush"]),
        make(plan(), contents=["new"]),
    )
    assert first == again
    assert first["fingerprint"] != other["fingerprint"]
    assert "hush-hush" not in " ".join(first["argv"])
    assert f"dgx-spark.fingerprint={first['fingerprint']}" in first["argv"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("/srv/models/tiny_qwen3/", "tiny-qwen3"),
        ("org/Some.Model@main", "some.model"),
        ("org/" + "x" * 90, "x" * 63),
        ("org/-._odd_.-", "odd"),
    ],
)
def test_a_deployment_is_named_after_its_model(model, name):
    assert deployment_name(model) == name


SECRETS = {"VLLM_API_KEY": "k", "HF_TOKEN": "t", "RAY_AUTH_TOKEN": "r"}


@pytest.mark.parametrize(
    ("the_plan", "node", "names"),
    [
        (plan("a"), "a", {"VLLM_API_KEY", "HF_TOKEN"}),
        (plan("ab"), "a", {"VLLM_API_KEY", "HF_TOKEN", "RAY_AUTH_TOKEN"}),
        (plan("ab"), "b", {"HF_TOKEN", "RAY_AUTH_TOKEN"}),
        (plan("ab", "mp"), "b", {"HF_TOKEN"}),
    ],
)
def test_a_node_gets_the_secrets_it_needs(the_plan, node, names):
    assert set(node_secrets(SECRETS, the_plan, node)) == names


def systemd_words(line):
    """Read a command line as systemd.service(5) says: quotes, backslashes, %% and $$."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.replace("\\\n", " "))]


@pytest.mark.parametrize(
    "words",
    [
        ["/usr/bin/docker", "run", "--name", "x", "image", "vllm"],
        ["/bin/echo", "100 %", "$HOME", 'say "hi"', '--json={"a": 1}', "back\\slash"],
    ],
)
def test_systemd_reads_the_words_back(words):
    assert systemd_words(systemd_command(words)) == words
