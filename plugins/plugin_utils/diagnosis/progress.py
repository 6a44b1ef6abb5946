# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How far a start has come, read from the log: what a gate shows while it waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import logs
from .conditions import number
from .rules import filled


def progress(log_text: str | Iterable[str]) -> dict[str, Any]:
    """The stage the newest lines speak of: ``{stage, detail, fraction, seconds_normal}``.

    ``fraction`` is None where vLLM prints no measure; ``seconds_normal`` is what the stage takes on a GB10 as
    a rule.
    """
    steps = [
        stream.progress[attempt]
        for stream in logs.read("", log_text)
        for attempt in [max(stream.progress, default=-1)]
        if attempt >= 0
    ]
    if not steps:
        return {
            "stage": "unknown",
            "detail": "no line of a start yet",
            "fraction": None,
            "seconds_normal": 60,
        }
    step = max(steps, key=lambda one: one.order)
    return {
        "stage": step.rule.stage,
        "detail": filled(step.rule.detail, step.values),
        "fraction": _fraction(step.values),
        "seconds_normal": step.rule.seconds_normal,
    }


def _fraction(values: dict[str, str]) -> float | None:
    done, total, percent = (
        number(values.get("done")),
        number(values.get("total")),
        number(values.get("percent")),
    )
    if done is not None and total:
        return round(min(1.0, done / total), 3)
    return round(min(1.0, percent / 100), 3) if percent is not None else None
