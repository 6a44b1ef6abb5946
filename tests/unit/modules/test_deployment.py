# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The deployment module: what it writes, starts and removes, twice, in check mode, and when things stand in its way."""

from __future__ import annotations

import json
import stat

import pytest
from ansible_collections.dgx_spark.vllm.plugins.modules import deployment

WISH = {
    "name": "tiny",
    "unit": "[Service]\nExecStart=/bin/true\n",
    "files": [{"name": "start.py", "content": "print()\n"}],
    "secrets": {"VLLM_API_KEY": "hush"},
    "record": {"model": "org/tiny"},
    "fingerprint": "f1",
}


class Node:
    """A systemd and a Docker that remember."""

    def __init__(self, commands):
        self.state, self.file_state, self.label = "inactive", "disabled", None
        commands.answers.update(systemctl=self.systemctl, docker=self.docker)
        self.calls = commands.calls

    def systemctl(self, words):
        verb = words[2]
        if verb == "show":
            return 0, f"Id=vllm-tiny.service\nActiveState={self.state}\nUnitFileState={self.file_state}\n"
        self.state = {"start": "active", "stop": "inactive"}.get(verb, self.state)
        self.file_state = {"enable": "enabled", "disable": "disabled"}.get(verb, self.file_state)
        return 0, ""

    def docker(self, words):
        if words[1] == "inspect":
            return (0, self.label + "\n") if self.label else (1, "")
        self.label = None if words[1] == "rm" else self.label
        return 0, ""

    def verbs(self):
        return [words[2] for words in self.calls if words[0] == "systemctl" and words[2] != "show"]


@pytest.fixture
def node(commands):
    return Node(commands)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_fresh_node_gets_all_and_is_told_to_start(run_module, node, tmp_path):
    result = run_module(deployment.main, **WISH)
    config = tmp_path / ".config/dgx-spark-vllm/tiny"
    assert result["changed"] and result["restart_needed"]
    assert (config / "start.py").read_text() == "print()\n"
    assert (config / "VLLM_API_KEY.secret").read_text() == "hush"
    assert mode(config) == 0o700 and mode(config / "VLLM_API_KEY.secret") == 0o600
    assert json.loads((tmp_path / ".local/state/dgx-spark-vllm/tiny.json").read_text()) == {"model": "org/tiny"}
    assert (tmp_path / ".config/systemd/user/vllm-tiny.service").read_text() == WISH["unit"]
    assert node.verbs() == ["daemon-reload", "enable"]


def test_a_second_time_changes_nothing(run_module, node):
    run_module(deployment.main, **WISH)
    node.state, node.label = "active", "f1"
    again = run_module(deployment.main, **WISH)
    assert not again["changed"] and not again["restart_needed"] and again["actions"] == []


@pytest.mark.parametrize(("state", "label"), [("inactive", "f1"), ("active", "f0"), ("activating", None)])
def test_a_start_is_needed_where_nothing_or_something_else_runs(run_module, node, state, label):
    run_module(deployment.main, **WISH)
    node.state, node.label = state, label
    result = run_module(deployment.main, **WISH)
    assert result["restart_needed"] and not result["changed"]


def test_files_of_an_earlier_version_go(run_module, node, tmp_path):
    run_module(deployment.main, **WISH)
    run_module(deployment.main, **WISH | {"files": [], "secrets": {}})
    assert list((tmp_path / ".config/dgx-spark-vllm/tiny").iterdir()) == []


def test_check_mode_tells_and_does_nothing(run_module, node, tmp_path):
    result = run_module(deployment.main, check=True, **WISH)
    assert result["changed"] and any("vllm-tiny.service" in action for action in result["actions"])
    assert list(tmp_path.iterdir()) == [] and node.verbs() == []


def test_no_secret_shows_in_result_or_diff(run_module, node):
    assert "hush" not in json.dumps(run_module(deployment.main, diff=True, **WISH))


def test_start_and_stop(run_module, node):
    run_module(deployment.main, **WISH)
    assert run_module(deployment.main, name="tiny", state="started")["changed"]
    assert not run_module(deployment.main, name="tiny", state="started")["changed"]
    node.label = "f1"
    assert run_module(deployment.main, name="tiny", state="stopped")["actions"] == [
        "stop vllm-tiny.service",
        "remove container vllm-tiny",
    ]
    assert not run_module(deployment.main, name="tiny", state="stopped")["changed"]


def test_absent_leaves_nothing_and_a_second_time_changes_nothing(run_module, node, tmp_path):
    run_module(deployment.main, **WISH)
    node.state = "active"
    assert run_module(deployment.main, name="tiny", state="absent")["changed"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert node.file_state == "disabled"
    assert not run_module(deployment.main, name="tiny", state="absent")["changed"]


def test_a_directory_that_the_user_cannot_write_is_told_with_the_cure(run_module, node, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(deployment.os, "access", lambda path, how: False)
    result = run_module(deployment.main, **WISH | {"directories": [str(cache)]})
    assert result["failed"] and "sudo chown -R" in result["msg"] and str(cache) in result["msg"]


def test_without_a_user_manager_the_failure_names_linger(run_module, node, commands):
    commands.answers["systemctl"] = lambda words: (1, "")
    result = run_module(deployment.main, **WISH)
    assert result["failed"] and "linger" in result["msg"]


@pytest.mark.parametrize("name", ["", "Tiny", "a/b", "-a", "a b", "x" * 80])
def test_a_bad_name_is_refused(run_module, node, name):
    assert run_module(deployment.main, **WISH | {"name": name})["msg"].startswith("name:")
