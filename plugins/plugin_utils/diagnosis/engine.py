# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Weighing what the rules saw: verdict, root cause, what else.

The root cause is the earliest fault over all nodes in the attempt that matters. Rules of a lower tier (the
peer is gone, NCCL failed, the service was restarted) only speak when no more telling fault was seen; wrappers
never do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal

from ..findings import LEVELS, Finding, Level
from . import config as configuration
from . import logs, response, state
from .conditions import all_hold
from .rules import FactRule, Rule, compound_rules, filled, notes, response_rules, state_rules

Verdict = Literal["fault", "healthy", "loading", "undecided"]
Confidence = Literal["high", "medium", "low"]

_CONFIDENCE: tuple[Confidence, ...] = ("high", "medium", "low")
_FIRSTHAND = frozenset(("source", "issue", "field-notes", "reproduced"))
_ALSO_SEEN = 3
_HEAD_LINES = 400
_NUMBERED = re.compile(r"\.\d+(?:\.|$)")  # places in lists differ between nodes and mean nothing
_RULES_PAGE = "docs/decisions.md"


@dataclass(frozen=True, slots=True)
class Seen:
    """A rule that holds, with where and when."""

    rule: Rule
    node: str
    evidence: tuple[str, ...]
    values: Mapping[str, Any]
    stamp: float | None = None
    order: int = 0
    origin: Literal["log", "state", "response", "compound"] = "log"
    doubt: int = 0

    @property
    def confidence(self) -> Confidence:
        """From where the rule is known, how telling it is, and what speaks against it."""
        doubts = self.doubt + (self.rule.evidence not in _FIRSTHAND) + (self.rule.tier > 1)
        return _CONFIDENCE[min(doubts, 2)]

    def finding(self, level: Level | None = None) -> dict[str, Any]:
        """As the filter returns it."""
        return {
            "id": self.rule.id,
            "level": level or self.rule.level,
            "confidence": self.confidence,
            "node": self.node,
            "evidence": list(self.evidence),
            "what": filled(self.rule.what, self.values),
            "why": filled(self.rule.why, self.values),
            "fix": filled(self.rule.fix, self.values),
            "source": f"{self.rule.source} ({_RULES_PAGE}#{self.rule.id})",
        }


def _told(
    rules: Iterable[FactRule], facts: Mapping[str, Any], node: str, origin: Any, version: str | None
) -> list[Seen]:
    seen = []
    for order, rule in enumerate(rules):
        if rule.in_force(version) and (held := all_hold(rule.when, facts)):
            values, evidence = held
            seen.append(
                Seen(rule, node, tuple(evidence[:4]), {**_plain(facts), **values}, order=order, origin=origin)
            )
    return seen


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that texts may name: ``flag.max_model_len`` as ``flag_max_model_len``."""
    return {
        name.replace(".", "_"): value
        for name, value in facts.items()
        if isinstance(value, str | int | float) and len(str(value)) < 200
    }


def _without_outweighed(seen: list[Seen]) -> list[Seen]:
    lighter = {name for one in seen for name in one.rule.outweighs}
    return [one for one in seen if one.rule.id not in lighter]


# ------------------------------------------------------------------------------------------------------------
# logs
@dataclass(slots=True)
class _Logs:
    faults: list[Seen]
    degraded: list[Seen]
    counts: dict[str, int]
    first: dict[str, logs.Hit]
    wrapped: bool
    ready: bool
    progress: logs.Progress | None


def _chosen_attempt(stream: logs.Stream) -> int | None:
    """The attempt to judge: the last with a fault, unless a later one came up."""
    last = stream.attempt
    for attempt in range(last, -1, -1):
        if attempt in stream.ready:
            return attempt
        if any(hit.rule.kind == "fault" for hit in stream.hits.values() if hit.attempt == attempt):
            return attempt
    return last


def _weigh_logs(streams: list[logs.Stream]) -> _Logs:
    result = _Logs([], [], {}, {}, False, False, None)
    for stream in streams:
        attempt = _chosen_attempt(stream)
        hits = sorted(
            (hit for hit in stream.hits.values() if hit.attempt == attempt), key=lambda hit: hit.order
        )
        ready = stream.ready.get(attempt) if attempt is not None else None
        served = stream.served.get(attempt, -1) if attempt is not None else -1
        wrapped = any(hit.rule.kind == "wrapper" and hit.last_order > max(served, ready or 0) for hit in hits)
        broken = wrapped or any(hit.rule.kind == "fault" and hit.level == "error" for hit in hits)
        result.wrapped |= wrapped
        result.ready |= ready is not None
        step = stream.progress.get(attempt) if attempt is not None else None
        if step and (result.progress is None or not result.progress.rule.done):
            result.progress = step
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


def _root(faults: list[Seen]) -> tuple[Seen | None, list[Seen]]:
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


# -----------------------------------------------------------------------------------------------------------
# state
def _node_facts(states: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {node: state.facts(part) for node, part in states.items()}


def _across(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What differs between nodes: how many values a fact has, how far its figures lie apart."""
    facts: dict[str, Any] = {}
    named = {node: part for node, part in nodes.items() if node}
    if len(named) < 2:
        return facts
    for path in {
        path
        for part in named.values()
        for path in part
        if path.startswith("state.") and not _NUMBERED.search(path)
    }:
        values = [part[path] for part in named.values() if path in part]
        if len(values) < 2:
            continue
        facts[f"nodes.distinct.{path[6:]}"] = len({str(value) for value in values})
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            facts[f"nodes.spread.{path[6:]}"] = max(values) - min(values)
    return facts


# ----------------------------------------------------------------------------------------------------------
# engine
def read_response(body: Any, **context: Any) -> list[Finding]:
    """The findings of one response alone, the telling one first.

    ``context``: ``request`` (the body sent), ``model``, ``thinking`` (none, on, off, always, adaptive),
    ``flags`` or ``reasoning_parser`` and ``tool_call_parser`` as the server was started, ``vllm`` (version).
    """
    return [
        Finding(
            one.rule.level,
            one.rule.id,
            filled(one.rule.what, one.values),
            filled(one.rule.why, one.values),
            filled(one.rule.fix, one.values),
            one.rule.source,
        )
        for one in _from_response(body, context)
    ]


def _from_response(body: Any, config: Mapping[str, Any]) -> list[Seen]:
    settings = configuration.config_facts(config)
    for name in ("reasoning_parser", "tool_call_parser"):
        if config.get(name):
            settings[f"flag.{name}"] = config[name]
    facts = {**settings, **response.response_facts(body, config)}
    seen = _told(response_rules(), facts, "", "response", settings.get("vllm"))
    return [
        replace(one, evidence=(_excerpt(facts),))
        for one in sorted(
            _without_outweighed(seen),
            key=lambda one: (LEVELS.index(one.rule.level), one.rule.tier, one.order),
        )
    ]


def _excerpt(facts: Mapping[str, Any]) -> str:
    if facts.get("kind") == "error":
        return f"status {facts.get('status') or '?'}: {facts.get('error', '')}"[:400]
    parts = [
        f"{name}={facts[name]!r:.120}"
        for name in ("finish", "completion_tokens", "max_tokens", "content", "reasoning", "tool_calls")
        if name in facts
    ]
    return ", ".join(parts)


def diagnose(evidence: Mapping[str, Any], **context: Any) -> dict[str, Any]:
    """Verdict and findings for logs, one response, states of nodes and configuration, as far as given."""
    config = {**(evidence.get("config") or {}), **context}
    texts: dict[str, Any] = dict(evidence.get("logs") or {})
    settings = configuration.config_facts(config)
    for node, text in texts.items():
        head, texts[node] = _peek(text)
        settings = {**configuration.log_facts(head), **settings}
    version = settings.get("vllm")
    states = state.per_node(evidence.get("state") or {})
    streams = [stream for node, text in texts.items() for stream in logs.read(str(node), text, version)]
    weighed = _weigh_logs(streams)
    quotes = _weigh_logs(
        [stream for node, part in states.items() for stream in logs.read(node, state.quoted(part), version)]
    )
    for rule_id, count in quotes.counts.items():
        weighed.counts[rule_id] = weighed.counts.get(rule_id, 0) + count
    nodes = _node_facts(states)
    told = {f"log.{rule_id}": count for rule_id, count in weighed.counts.items()}
    told.update({"logs.ready": weighed.ready, "logs.nodes": len(texts)})
    seen: list[Seen] = []
    for node, facts in nodes.items():
        seen += _told(state_rules(), {**settings, **told, **facts}, node, "state", version)
    across = _across(nodes)
    if across:
        seen += [
            one
            for one in _told(state_rules(), {**settings, **told, **across}, "", "state", version)
            if one.rule.id not in {other.rule.id for other in seen}
        ]
    merged = {
        **settings,
        **told,
        **{path: value for facts in nodes.values() for path, value in facts.items()},
    }
    merged["state_text"] = "\n".join(str(facts.get("state_text", "")) for facts in nodes.values())
    compounds = [
        _placed(one, weighed, quotes) for one in _told(compound_rules(), merged, "", "compound", version)
    ]
    body = evidence.get("response")
    spoken = (
        _from_response(
            body, {**config, **{f"flag.{k[5:]}": v for k, v in settings.items() if k.startswith("flag.")}}
        )
        if body not in (None, "")
        else []
    )
    everything = _without_outweighed(
        weighed.faults
        + weighed.degraded
        + compounds
        + seen
        + spoken
        + [replace(one, origin="state") for one in quotes.faults + quotes.degraded]
    )
    return _verdict(everything, weighed, body)


def _peek(text: Any) -> tuple[str, Any]:
    if isinstance(text, str):
        return text[:100_000], text
    iterator = iter(text)
    head = list(islice(iterator, _HEAD_LINES))
    return "\n".join(head), chain(head, iterator)


def _placed(one: Seen, weighed: _Logs, quotes: _Logs) -> Seen:
    """A compound at the first of the lines it speaks of."""
    rule = one.rule
    names = [condition["log"] for condition in getattr(rule, "when", ()) if "log" in condition]
    hits = [hit for name in names for part in (weighed, quotes) if (hit := part.first.get(name))]
    if not hits:
        return one
    first = min(hits, key=lambda hit: hit.order)
    lines = tuple(line for hit in hits for line in hit.evidence[:2])[:4]
    values = {**one.values, **{name: text for hit in reversed(hits) for name, text in hit.values.items()}}
    return replace(
        one,
        node=first.node,
        stamp=first.stamp,
        order=first.order,
        evidence=(*lines, *one.evidence)[:5],
        values=values,
    )


def _verdict(seen: list[Seen], weighed: _Logs, body: Any) -> dict[str, Any]:
    answered = [one for one in seen if one.origin == "response" and one.rule.kind == "fault"]
    faults = [
        one
        for one in seen
        if one.origin != "response" and one.rule.kind == "fault" and one not in weighed.degraded
    ]
    spoken = [*faults, *answered]
    rest = [one for one in seen if one not in spoken and one.rule.kind not in ("wrapper", "signal")]
    good = _is_completion(body) and not answered
    logged = [one for one in faults if one.origin in ("log", "compound")]
    well = good or any(one.rule.category == "healthy" for one in seen)
    stalled = [one for one in faults if one.origin == "state" and one.rule.category == "hang"]
    if (logged and well and not weighed.ready) or (stalled and good):
        return _result("undecided", [_note("contradictory-run"), *_as("warning", logged or stalled)])
    root, rivals = _root(faults)
    if rivals:
        doubted = [replace(one, doubt=1) for one in rivals]
        return _result("undecided", [_note("contradictory-nodes"), *_as("warning", doubted)])
    if answered and (root is None or root.rule.tier > 1 or weighed.ready):
        first = answered[0]
        others = [one for one in answered[1:] if one.rule.category != first.rule.category]
        return _result("fault", [first.finding(), *_as("note", others), *_as("warning", faults[:1])])
    if root is None:
        return _without_fault(rest, weighed, good, seen)
    others = [
        one
        for one in {one.rule.id: one for one in faults}.values()
        if one.rule.category != root.rule.category and one.rule.tier <= root.rule.tier
    ]
    states = [one for one in rest if one.origin == "state" and one.rule.category != root.rule.category]
    return _result("fault", [root.finding(), *_as("note", others), *_as(None, states)])


def _without_fault(rest: list[Seen], weighed: _Logs, good: bool, seen: list[Seen]) -> dict[str, Any]:
    told = sorted(_as(None, rest), key=lambda finding: LEVELS.index(finding["level"]))
    if good or (weighed.ready and not weighed.wrapped):
        return _result("healthy", told)
    wrapped = weighed.wrapped or any(one.rule.kind == "wrapper" for one in seen)
    if wrapped or "python-exception" in weighed.counts:
        return _result("undecided", [_look_next(weighed, seen), *told])
    step = weighed.progress
    if step is not None:
        values = {"detail": filled(step.rule.detail, step.values), "seconds_normal": step.rule.seconds_normal}
        return _result("loading", [*told, _note("still-loading", values, node=step.node)])
    if any(one.rule.category == "healthy" for one in seen):
        return _result("healthy", told)
    if told and told[0]["level"] == "warning":
        return _result("fault", told)
    return _result("undecided", [*told, _note("nothing-recognised")])


def _look_next(weighed: _Logs, seen: list[Seen]) -> dict[str, Any]:
    """What to look at when only the consequence was logged, or an error that no rule knows."""
    unknown = weighed.first.get("python-exception")
    if unknown is not None:
        return _note("unrecognised-error", unknown.values, tuple(unknown.evidence), unknown.node)
    wrappers = [hit for hit in weighed.first.values() if hit.rule.kind == "wrapper"]
    rules = [hit.rule for hit in wrappers] + [one.rule for one in seen if one.rule.kind == "wrapper"]
    lines = tuple(hit.evidence[0] for hit in wrappers[:_ALSO_SEEN])
    return _note("cause-not-in-evidence", {"next": " ".join(rule.fix for rule in rules[:2])}, lines)


def _note(
    name: str, values: Mapping[str, Any] | None = None, evidence: tuple[str, ...] = (), node: str = ""
) -> dict[str, Any]:
    return Seen(notes()[name], node, evidence, values or {}, doubt=2).finding()


def _as(level: Level | None, seen: Iterable[Seen]) -> list[dict[str, Any]]:
    """The first few as findings, at another level where one is given."""
    return [one.finding(level) for one in islice(seen, _ALSO_SEEN)]


def _is_completion(body: Any) -> bool:
    return isinstance(body, Mapping) and bool(body.get("choices"))


def _result(verdict: Verdict, findings: list[dict[str, Any]]) -> dict[str, Any]:
    return {"verdict": verdict, "findings": findings}
