# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The demo: two simulated Sparks, the playbooks and inventory that a user gets from `init`, a real completion.

Usage: demo.py [name=value ...]; the words go to ansible-playbook as extra variables, such as vllm_launcher=mp.
A second run reuses what is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache/demo"
OVERLAY = ROOT / ".cache/simulator/overlay"
SSH_CONFIG = ROOT / ".cache/simulator/ssh_config"
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
    "PYTHONUNBUFFERED": "1",
}
PROMPT = "What is the capital of France? Answer in one word."


def run(*words: str, cwd: Path = ROOT) -> float:
    """Run a command and return the seconds it took; the demo ends where a step fails."""
    started = time.monotonic()
    print("\n$", " ".join(words), flush=True)
    if subprocess.run(words, cwd=cwd, env=ENVIRONMENT, check=False).returncode:
        sys.exit(f"demo: this step failed: {' '.join(words)}")
    return time.monotonic() - started


def on_head(command: str) -> str:
    """What a command prints on the head."""
    words = ["ssh", "-F", str(SSH_CONFIG), "spark-1", command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def complete(record: dict[str, str], key: str) -> dict[str, object]:
    """One chat completion from the controller, as any client would ask for it."""
    body = {
        "model": record["served_model_name"],
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 64,
        "temperature": 0,
    }
    request = urllib.request.Request(
        record["api"] + "/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, object] = json.load(response)
    return answer


def main(wishes: list[str]) -> None:
    extra = [word for wish in wishes for word in ("-e", wish)]
    seconds = {
        "two simulated Sparks": run(sys.executable, "-m", "simulator", "up", cwd=ROOT / "tests"),
        "working directory": run("ansible-playbook", "dgx_spark.vllm.init", "-e", f"dest={WORK}"),
        "deploy": run("ansible-playbook", "deploy.yml", "-i", "spark-pair", "-i", str(OVERLAY), *extra, cwd=WORK),
    }
    name = on_head("ls -t .local/state/dgx-spark-vllm | head -n 1").strip().removesuffix(".json")
    record = json.loads(on_head(f"cat .local/state/dgx-spark-vllm/{name}.json"))
    key_file = f".config/dgx-spark-vllm/{name}/VLLM_API_KEY.secret"
    answer = complete(record, on_head(f"cat {key_file}"))
    print("\nThe completion:\n", json.dumps(answer, indent=1), sep="")
    print("\nWhat took how long:")
    for step, duration in seconds.items():
        print(f"  {step:24} {duration:6.1f} s")
    print(f"""
Talk to it:
  key=$(ssh -F {SSH_CONFIG} spark-1 cat {key_file})
  curl {record["api"]}/v1/chat/completions -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \\
    -d '{{"model": "{record["served_model_name"]}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
Look at it:
  ssh -F {SSH_CONFIG} spark-1 systemctl --user status vllm-{name}
  ssh -F {SSH_CONFIG} spark-1 journalctl --user -f -u vllm-{name}
Take it off the nodes, or the nodes down:
  cd {WORK} && ansible-playbook teardown.yml -i spark-pair -i {OVERLAY}
  make demo-down""")


if __name__ == "__main__":
    main(sys.argv[1:])
