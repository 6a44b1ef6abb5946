# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a deployment must be on its nodes, whatever its placement."""

from __future__ import annotations

import json

import pytest

SECRETS = ("VLLM_API_KEY", "RAY_AUTH_TOKEN")


def test_every_head_answers_a_real_completion_that_ends(heads):
    for head in heads:
        body = head.answer()
        choice = body["choices"][0]
        assert choice["message"]["content"].strip()
        assert choice["finish_reason"] == "stop"
        assert 0 < body["usage"]["completion_tokens"] < 64
        assert body["model"] == head.record["served_model_name"]


def test_the_same_model_says_the_same_on_one_node_and_over_two(heads, answers):
    """Each scenario leaves the greedy answer of its models; all that stand there must be equal."""
    for head in heads:
        text = head.answer()["choices"][0]["message"]["content"]
        kept = answers / f"{head.record['served_model_name']}.json"
        said = json.loads(kept.read_text()) if kept.exists() else {}
        placement = head.record["plan"]["placement"]
        said[f"{placement['kind']} {placement['launcher']}"] = text
        kept.write_text(json.dumps(said, indent=1))
        assert set(said.values()) == {text}, said


def test_units_of_the_user_run_and_start_at_boot(nodes):
    for node in nodes:
        assert node.unit_property("ActiveState") == "active"
        assert node.unit_property("UnitFileState") == "enabled"
        assert node.host.file("/var/lib/systemd/linger/spark").exists


def test_containers_may_do_little_and_show_no_secret(nodes):
    for node in nodes:
        facts = node.inspect()
        assert facts["HostConfig"]["Privileged"] is False
        assert facts["HostConfig"]["CapDrop"] == ["ALL"]
        assert facts["Config"]["User"] == "1000:1000"
        text = json.dumps(facts) + node.out("ps axww -o args") + node.out(f"systemctl --user cat {node.unit}")
        text += node.out(f"journalctl --user -u {node.unit} --no-pager -o cat")
        for name in SECRETS:
            if node.host.file(f"/home/spark/.config/dgx-spark-vllm/{node.deployment}/{name}.secret").exists:
                assert node.secret(name) not in text, f"{name} shows on {node.name}"


def test_secrets_are_for_the_user_alone(nodes):
    for node in nodes:
        directory = f"/home/spark/.config/dgx-spark-vllm/{node.deployment}"
        assert node.out(f"stat -c %a {directory}") == "700"
        assert set(node.out(f"stat -c %a {directory}/*").split()) == {"600"}


def test_the_endpoint_wants_its_key(heads):
    for head in heads:
        assert head.ask()[0] == 401
        assert head.ask("wrong")[0] == 401


def test_the_api_listens_on_the_address_of_the_head_alone(heads):
    for head in heads:
        address = head.record["api"].removeprefix("http://")
        assert head.out("ss -Hltn 'sport = :8000'").split()[3] == address


def test_nothing_of_ours_belongs_to_root(nodes):
    for node in nodes:
        assert node.out("find .config .local/state .cache -uid 0") == ""


def test_each_node_is_known_by_its_address_on_the_fabric(pair):
    for node in pair:
        link = next(entry for entry in node.record["nodes"] if entry["name"] == node.name)
        environment = dict(entry.split("=", 1) for entry in node.inspect()["Config"]["Env"])
        assert link["fabric_address"].startswith("192.168.100.")
        assert environment["VLLM_HOST_IP"] == link["fabric_address"]
        assert {environment[name] for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")} == {
            link["fabric_interface"]
        }


def test_ray_sees_both_nodes_and_wants_its_token(pair):
    head = pair[0]
    if head.record["role"] != "ray_head":
        pytest.skip("no Ray in this scenario")
    status = head.out(f"docker exec {head.container} ray status")
    assert status.count("node_") == 2, status
    assert "Pending:\n (no pending nodes)" in status
    assert "no failures" in status
    wrong = head.host.run(f"docker exec -e RAY_AUTH_TOKEN_PATH= -e RAY_AUTH_TOKEN=wrong {head.container} ray status")
    assert wrong.rc != 0
