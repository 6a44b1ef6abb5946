# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a deploy costs that changes nothing, on the simulated pair: seconds, and module runs on each node.

Needs the pair with a deployment on it (`make demo`). Times are noisy; the ratio at the end compares the deploy with
bare pings of the same nodes in the same run: how many of the cheapest possible tasks it is worth.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INVENTORY = ["-i", "spark-pair", "-i", ".cache/simulator/overlay"]
BIN = Path(sys.executable).parent
ENVIRONMENT = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_FORCE_COLOR": "0"}
REPEATS = 3
# With pipelining each module run is one command on the node that reads the module from its standard input.
MODULE_RUN = re.compile(r"^<(?P<address>[^>]+)> SSH: EXEC ssh .*/usr/bin/python3", re.MULTILINE)


def run(*words: str) -> tuple[float, str]:
    """Seconds a command took and what it printed; a failure ends the benchmark."""
    started = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return seconds, done.stdout


def main() -> None:
    deploy = ["ansible-playbook", "deploy.yml", *INVENTORY]
    _seconds, text = run(*deploy, "-vvv")
    if changed := [line for line in text.splitlines() if re.search(r"changed=[1-9]", line)]:
        sys.exit("This deploy changed something, so there is nothing to measure yet:\n" + "\n".join(changed))
    runs: dict[str, int] = {}
    for match in MODULE_RUN.finditer(text):
        runs[match["address"]] = runs.get(match["address"], 0) + 1
    ping = statistics.median(
        run("ansible", "sparks", *INVENTORY, "-m", "ansible.builtin.ping")[0] for _n in range(REPEATS)
    )
    seconds = statistics.median(run(*deploy)[0] for _n in range(REPEATS))
    print("| a deploy that changes nothing | |\n|---|---|")
    print(f"| seconds, median of {REPEATS} | {seconds:.1f} |")
    for address, count in sorted(runs.items()):
        print(f"| module runs on {address} | {count} |")
    if not runs:
        sys.exit("No module run was seen in the output of -vvv; the pattern MODULE_RUN is out of date.")
    print(f"| seconds of a bare ping of the same nodes | {ping:.1f} |")
    print(f"| ratio deploy to ping | {seconds / ping:.1f} |")


if __name__ == "__main__":
    main()
