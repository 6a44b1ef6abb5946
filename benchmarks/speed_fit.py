# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fits the numbers of knowledge/speed.yml to its measurements and prints how each row comes out.

    .venv/bin/python benchmarks/speed_fit.py [--rounds 20000]

A fixed seed, so that the same measurements give the same numbers. The numbers in the file are these, rounded.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils import speed  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import read_checkpoint  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.demand import decoding_of  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge  # noqa: E402

FIXTURES = json.loads((ROOT / "tests/unit/fixtures/speed_models.json").read_text(encoding="utf-8"))
# What is fitted, and within which bounds: an efficiency stays one, a time stays positive.
BOUNDS: dict[tuple[str, ...], tuple[float, float]] = {
    **{("formats", name, "efficiency"): (0.5, 0.97) for name in ("none", "fp8", "nvfp4", "mixed", "mxfp4", "int4")},
    ("kv", "efficiency"): (0.6, 0.95),
    ("block_seconds", "attention"): (1e-5, 2e-4),
    ("block_seconds", "recurrent"): (1e-5, 4e-4),
    ("block_seconds", "eager"): (1e-5, 8e-4),
    ("nodes", "stage_hop_seconds"): (0.0, 5e-3),
    ("nodes", "reduction_seconds"): (1e-5, 2e-4),
}


@cache
def decoding(name: str, kv_cache_dtype: str) -> speed.Decoding:
    """What a token of a measured model reads."""
    return decoding_of(read_checkpoint({"id": name, **FIXTURES[name]}), kv_cache_dtype)


def predict(row: dict[str, Any]) -> speed.Speed:
    """The planner's answer for one measurement."""
    return speed.decode_speed(
        decoding(row["config"], row.get("kv_cache_dtype", "auto")),
        273,
        row.get("pipeline", 1),
        row.get("tensor", 1),
        row.get("depth"),
        row.get("enforce_eager", False),
    )


def errors(rows: list[dict[str, Any]]) -> Iterator[float]:
    """Logarithms of predicted over published."""
    for row in rows:
        yield math.log(predict(row).expected / row["tokens_per_second"])


def loss(rows: list[dict[str, Any]]) -> float:
    """Mean of the absolute errors, each capped, and what lies beyond the range counts double."""
    return statistics.mean(min(abs(e), 0.5) + 2 * max(0.0, abs(e) - 0.33) for e in errors(rows))


def place(model: Any, path: tuple[str, ...], value: float) -> None:
    """Set one number; the plain blocks share theirs."""
    for key in path[:-1]:
        model = model[key]
    model[path[-1]] = value
    if path[-1] == "attention":
        model["mlp"] = model["moe"] = model["other"] = value


def read(model: Any, path: tuple[str, ...]) -> float:
    """One number."""
    for key in path:
        model = model[key]
    return float(model)


def main() -> None:
    """Fit, print the numbers, then every row with the numbers of the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20000)
    arguments = parser.parse_args()
    rows = knowledge("speed")["measurements"]
    kept = knowledge("speed")["model"]
    trial = copy.deepcopy(kept)
    speed._model = lambda: trial  # type: ignore[assignment]
    dice, best = random.Random(1), loss(rows)
    for _round in range(arguments.rounds):
        path, (low, high) = dice.choice(list(BOUNDS.items()))
        before = read(trial, path)
        step = dice.gauss(0, 0.1) * (high - low)
        place(trial, path, min(high, max(low, before + step)))
        found = loss(rows)
        if found < best:
            best = found
        else:
            place(trial, path, before)
    print("| number | fitted | in the file |\n|---|---|---|")
    for path in BOUNDS:
        print(f"| {'.'.join(path)} | {read(trial, path):.3g} | {read(kept, path):.3g} |")

    trial = kept
    print("\n| model | nodes | depth | published | expected | range | error |\n|---|---|---|---|---|---|---|")
    inside, off = 0, []
    for row in rows:
        answer, figure = predict(row), row["tokens_per_second"]
        inside += answer.low <= figure <= answer.high
        off.append(abs(answer.expected / figure - 1))
        layout = f"PP{row['pipeline']}" if "pipeline" in row else f"TP{row.get('tensor', 1)}"
        print(
            f"| {row['config']} | {layout} | {row.get('depth', '')} | {figure:g} | {answer.expected:.3g} |"
            f" {answer.low:.3g} to {answer.high:.3g} | {answer.expected / figure - 1:+.0%} |"
        )
    share, median = inside / len(rows), statistics.median(off)
    print(f"\n{len(rows)} rows: {share:.0%} inside the range, median error {median:.0%}")


if __name__ == "__main__":
    main()
