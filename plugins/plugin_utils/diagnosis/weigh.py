# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Weighing what was seen in logs: which attempt counts, what the start survived, what came first."""

from __future__ import annotations

from dataclasses import dataclass

from . import logs
from .seen import Seen


@dataclass(slots=True)
class Weighed:
    """What the logs hold against the deployment, and how far it came."""

    faults: list[Seen]
    degraded: list[Seen]
    counts: dict[str, int]
    first: dict[str, logs.Hit]
    wrapped: bool
    ready: bool
    progress: logs.Progress | None
    failed: bool = False


def _chosen_attempt(stream: logs.Stream) -> int | None:
    """The attempt to judge: the last with a fault, unless a later one came up."""
    last = stream.attempt
    for attempt in range(last, -1, -1):
        if attempt in stream.ready:
            return attempt
        if any(hit.rule.kind == "fault" for hit in stream.hits.values() if hit.attempt == attempt):
            return attempt
    return last


def weigh(streams: list[logs.Stream]) -> Weighed:
    """Faults that count, what works but not well, and counts of all rules that were seen."""
    result = Weighed([], [], {}, {}, False, False, None)
    for stream in streams:
        attempt = _chosen_attempt(stream)
        hits = sorted((hit for hit in stream.hits.values() if hit.attempt == attempt), key=lambda hit: hit.order)
        ready = stream.ready.get(attempt) if attempt is not None else None
        served = stream.served.get(attempt, -1) if attempt is not None else -1
        wrapped = any(hit.rule.kind == "wrapper" and hit.last_order > max(served, ready or 0) for hit in hits)
        broken = wrapped or any(hit.rule.kind == "fault" and hit.level == "error" for hit in hits)
        result.wrapped |= wrapped
        result.ready |= ready is not None
        step = stream.progress.get(attempt) if attempt is not None else None
        if step and (result.progress is None or not result.progress.rule.done):
            result.progress = step
        unknown = next((hit for hit in hits if hit.rule.id == "python-exception"), None)
        reached = max(ready or 0, served, step.order if step else 0)
        if unknown and (wrapped or unknown.last_order > reached):
            result.failed = True  # it ends with an exception, whatever it means
        moving = stream.generated.get(attempt, -1) if attempt is not None else -1
        for hit in hits:
            if hit.rule.kind == "signal" and moving > hit.last_order:
                continue  # tokens came again later
            result.counts[hit.rule.id] = result.counts.get(hit.rule.id, 0) + hit.count
            result.first.setdefault(hit.rule.id, hit)
            if hit.rule.kind not in ("fault", "degraded"):
                continue
            seen = Seen(hit.rule, hit.node, tuple(hit.evidence), hit.values, hit.stamp, hit.order)
            survived = ready is not None and hit.last_order < ready and hit.rule.kind == "fault"
            passing = served > hit.last_order and not wrapped and not hit.rule.recurs
            unheard = hit.level in ("warning", "info") and not (hit.rule.loud or broken)
            if survived or (unheard and hit.rule.kind == "fault"):
                continue
            if hit.rule.kind == "degraded" or passing:
                result.degraded.append(seen)
            else:
                result.faults.append(seen)
    return result


def _firsts(faults: list[Seen]) -> list[Seen]:
    """The first fault of every node, the most telling tier first."""
    firsts = {}
    for node in dict.fromkeys(one.node for one in faults):
        own = [one for one in faults if one.node == node]
        tier = min(one.rule.tier for one in own)
        own = [one for one in own if one.rule.tier == tier]
        timed = all(one.stamp is not None for one in own)
        firsts[node] = min(own, key=lambda one: ((one.stamp or 0.0) if timed else 0.0, one.order))
    return list(firsts.values())


def first_cause(faults: list[Seen]) -> tuple[Seen | None, list[Seen]]:
    """The root cause, or the rivals between which the evidence does not decide."""
    if not faults:
        return None, []
    tier = min(one.rule.tier for one in faults)
    firsts = _firsts([one for one in faults if one.rule.tier == tier])
    timed = [one for one in firsts if one.stamp is not None]
    if len(timed) == len(firsts):
        return min(timed, key=lambda one: (one.stamp, one.order)), []
    categories = {one.rule.category for one in firsts}
    if len(categories) == 1 or len(firsts) == 1:
        return firsts[0], []
    from_logs = [one for one in firsts if one.origin != "state"]
    if len(from_logs) == 1:
        return from_logs[0], []
    return None, firsts
