# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes over ssh, and what their records say of the deployments on them."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import testinfra

ROOT = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
SSH_CONFIG = str(ROOT / ".cache/simulator/ssh_config")
PROMPT = "What is the capital of France? Answer in one word."
NODES = ("spark-1", "spark-2")


class Node:
    """One simulated Spark and its part of the one deployment on it."""

    def __init__(self, name):
        self.name = name
        self.host = testinfra.get_host(f"ssh://{name}", ssh_config=SSH_CONFIG)
        records = self.out("ls .local/state/dgx-spark-vllm/").split()
        assert len(records) == 1, f"{name} has the records {records}"
        self.record = json.loads(self.out(f"cat .local/state/dgx-spark-vllm/{records[0]}"))
        self.deployment = self.record["deployment"]
        self.unit = f"vllm-{self.deployment}.service"
        self.container = f"vllm-{self.deployment}"

    def out(self, command):
        """What a command prints; it must not fail."""
        result = self.host.run(command)
        assert result.rc == 0, f"{self.name}: {command}: {result.stderr}"
        return result.stdout.strip()

    def unit_property(self, name):
        return self.out(f"systemctl --user show --property={name} --value {self.unit}")

    def inspect(self):
        return json.loads(self.out(f"docker inspect {self.container}"))[0]

    def secret(self, name):
        return self.out(f"cat .config/dgx-spark-vllm/{self.deployment}/{name}.secret")

    def ask(self, key=None, prompt=PROMPT, path="/v1/chat/completions"):
        """HTTP status and body of one greedy completion, asked from the controller over the LAN."""
        body = {
            "model": self.record["served_model_name"],
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 64,
            "temperature": 0,
        }
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self.record["api"] + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, {}
        except OSError:
            return 0, {}

    def answer(self, seconds=600):
        """The text of a completion; waits for a node that is still booting or loading."""
        key, end = self.secret("VLLM_API_KEY"), time.monotonic() + seconds
        while time.monotonic() < end:
            status, body = self.ask(key)
            if status == 200:
                return body
            time.sleep(3)
        pytest.fail(
            f"no completion from {self.record['api']} in {seconds} s (last status {status}); the unit says:\n"
            + self.out(f"journalctl --user -u {self.unit} -n 40 --no-pager -o cat")
        )


@pytest.fixture(scope="session")
def nodes():
    return [Node(name) for name in NODES]


@pytest.fixture(scope="session")
def heads(nodes):
    """The nodes that answer: the head of the pair, or both."""
    return [node for node in nodes if not node.record["role"].endswith("worker")]


@pytest.fixture(scope="session")
def pair(nodes):
    if len(nodes[0].record["plan"]["placement"]["nodes"]) < 2:
        pytest.skip("in this scenario each node serves alone")
    return nodes


@pytest.fixture(scope="session")
def answers():
    """Where the scenarios of one run of all tests leave what their models said."""
    directory = ROOT / ".cache/answers"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
