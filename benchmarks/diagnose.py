# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How fast logs are read for a diagnosis: MB/s, and the ratio to plain iteration over the same lines.

Run from the repository: ``python benchmarks/diagnose.py [megabytes]``. Three kinds of log: what a server
prints (lines repeat but for their figures), lines that are all different, and one error printed without end.
Processor time is counted, so that other work on the machine does not.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".collections"))

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis import diagnose

_SERVING = (
    "(APIServer pid=1) INFO 09-01 12:{m:02}:{s:02} [loggers.py:271] Engine 000: Avg prompt throughput: {n}.0 "
    "tokens/s, Avg generation throughput: {n}.4 tokens/s, Running: {k} reqs, Waiting: 0 reqs",
    '(APIServer pid=1) INFO:     10.0.0.{k}:{n} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "(EngineCore pid=77) WARNING 09-01 12:{m:02}:{s:02} [kv.py:109] Checkpoint has no q scaling factor.",
    "node:12:34 [0] NCCL INFO Channel {k:02}/16 : 0 1",
    "Loading safetensors checkpoint shards:  {k}% Completed | {k}/99 [00:{s:02}<06:41, 33.46s/it]",
)
_WORDS = (
    "tensor",
    "layer",
    "request",
    "cache",
    "model",
    "prefill",
    "decode",
    "scheduler",
    "finished",
    "batch",
    "token",
)
_ERROR = "(EngineCore pid=7) ERROR 09-01 12:00:01 [core.py:1586] RuntimeError: CUDA error: out of memory"


def serving(size: int) -> Iterator[str]:
    """What a busy server prints."""
    written = count = 0
    while written < size:
        line = _SERVING[count % len(_SERVING)].format(m=count // 60 % 60, s=count % 60, n=count % 9000, k=count % 99)
        written += len(line) + 1
        count += 1
        yield line


def unlike(size: int) -> Iterator[str]:
    """Lines of which no two are alike."""
    dice = random.Random(7)
    written = 0
    while written < size:
        words = " ".join(dice.choices(_WORDS, k=10))
        name = f"req-{dice.getrandbits(96):024x}"
        line = f"(EngineCore pid=7) INFO 09-01 12:00:01 [x.py:1] {name} {words} {dice.random()}"
        written += len(line) + 1
        yield line


def again(size: int) -> Iterator[str]:
    """One error without end."""
    for _line in range(size // (len(_ERROR) + 1)):
        yield _ERROR


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print the table; the ratio is in the last column."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    size = megabytes * 1_000_000
    print(f"{'log':10} {'MB':>5} {'CPU s':>8} {'MB/s':>7} {'plain iteration / diagnose':>28}")
    for make in (serving, unlike, again):
        sample = list(make(size))
        plain = _cpu_seconds(lambda sample=sample: sum(1 for line in sample if line))  # type: ignore[misc]
        taken = _cpu_seconds(lambda sample=sample: diagnose({"logs": {"node": iter(sample)}}))  # type: ignore[misc]
        print(f"{make.__name__:10} {megabytes:5} {taken:8.2f} {megabytes / taken:7.1f} {plain / taken:28.4f}")
        del sample
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
