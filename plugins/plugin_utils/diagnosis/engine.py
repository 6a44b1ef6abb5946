# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Weighing what the rules saw: verdict, root cause, what else.

The root cause is the earliest fault over all nodes in the attempt that matters. Rules of a lower tier (the
peer is gone, NCCL failed, the service was restarted) only speak when no more telling fault was seen; wrappers
never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Literal

from ..findings import LEVELS, Finding, Level
from . import config as configuration
from . import logs, response, state
from .rules import compound_rules, filled, notes, response_rules, state_rules
from .seen import Seen, told, without_outweighed
from .weigh import Weighed, first_cause, weigh

Verdict = Literal["fault", "healthy", "loading", "undecided"]

_ALSO_SEEN = 3
_HEAD_LINES = 400


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


def _from_response(body: Any, config: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> list[Seen]:
    settings = {**configuration.config_facts(config), **(settings or {})}
    for name in ("reasoning_parser", "tool_call_parser"):
        if config.get(name):
            settings[f"flag.{name}"] = config[name]
    facts = {**settings, **response.response_facts(body, config)}
    seen = told(response_rules(), facts, "", "response", settings.get("vllm"))
    return [
        replace(one, evidence=(_excerpt(facts),))
        for one in sorted(
            without_outweighed(seen),
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
    weighed = weigh([stream for node, text in texts.items() for stream in logs.read(str(node), text, version)])
    quotes = weigh([stream for node, part in states.items() for stream in logs.read(node, state.quoted(part), version)])
    for rule_id, count in quotes.counts.items():
        weighed.counts[rule_id] = weighed.counts.get(rule_id, 0) + count
    common = {
        **settings,
        **{f"log.{rule_id}": count for rule_id, count in weighed.counts.items()},
        "logs.ready": weighed.ready,
        "logs.failed": weighed.failed,
        "logs.nodes": len(texts),
    }
    body = evidence.get("response")
    seen = [
        *weighed.faults,
        *weighed.degraded,
        *_from_states({node: state.facts(part) for node, part in states.items()}, common, weighed, quotes),
        *(_from_response(body, config, settings) if body not in (None, "") else ()),
        *(replace(one, origin="state") for one in quotes.faults + quotes.degraded),
    ]
    return _verdict(without_outweighed(seen), weighed, body)


def _from_states(
    nodes: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any], weighed: Weighed, quotes: Weighed
) -> list[Seen]:
    """Rules over facts: what lines and all nodes say together, then each node, then what differs."""
    version = common.get("vllm")
    merged = {f"state.{node}.{path[6:]}": value for node, facts in nodes.items() for path, value in facts.items()}
    merged["state_text"] = "\n".join(str(facts.get("state_text", "")) for facts in nodes.values())
    seen = [
        _placed(one, weighed, quotes) for one in told(compound_rules(), {**common, **merged}, "", "compound", version)
    ]
    for node, facts in {**nodes, "": state.across(nodes), **({"": nodes[""]} if "" in nodes else {})}.items():
        known = {one.rule.id for one in seen}
        seen += [
            one for one in told(state_rules(), {**common, **facts}, node, "state", version) if one.rule.id not in known
        ]
    return seen


def _peek(text: Any) -> tuple[str, Any]:
    if isinstance(text, str):
        return text[:100_000], text
    iterator = iter(text or ())
    head = list(islice(iterator, _HEAD_LINES))
    return "\n".join(head), chain(head, iterator)


def _placed(one: Seen, weighed: Weighed, quotes: Weighed) -> Seen:
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


def _verdict(seen: list[Seen], weighed: Weighed, body: Any) -> dict[str, Any]:
    answered = [one for one in seen if one.origin == "response" and one.rule.kind == "fault"]
    faults = [
        one for one in seen if one.origin != "response" and one.rule.kind == "fault" and one not in weighed.degraded
    ]
    spoken = [*faults, *answered]
    rest = [one for one in seen if one not in spoken and one.rule.kind not in ("wrapper", "signal")]
    good = _is_completion(body) and not answered
    logged = [one for one in faults if one.origin in ("log", "compound")]
    well = good or any(one.rule.category == "healthy" for one in seen)
    stalled = [one for one in faults if one.origin == "state" and one.rule.category == "hang"]
    if (logged and well and not weighed.ready) or (stalled and good):
        return _result("undecided", [_note("contradictory-run"), *_as("warning", logged or stalled)])
    root, rivals = first_cause(faults)
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


def _without_fault(rest: list[Seen], weighed: Weighed, good: bool, seen: list[Seen]) -> dict[str, Any]:
    findings = sorted(_as(None, rest), key=lambda finding: LEVELS.index(finding["level"]))
    if good or (weighed.ready and not weighed.wrapped):
        return _result("healthy", findings)
    wrapped = weighed.wrapped or any(one.rule.kind == "wrapper" for one in seen)
    if wrapped or weighed.failed:
        verdict: Verdict = "fault" if weighed.failed else "undecided"
        return _result(verdict, [_look_next(weighed, seen), *findings])
    step = weighed.progress
    if step is not None:
        values = {"detail": filled(step.rule.detail, step.values), "seconds_normal": step.rule.seconds_normal}
        return _result("loading", [*findings, _note("still-loading", values, node=step.node)])
    if any(one.rule.category == "healthy" for one in seen):
        return _result("healthy", findings)
    if findings and findings[0]["level"] == "warning":
        return _result("fault", findings)
    return _result("undecided", [*findings, _note("nothing-recognised")])


def _look_next(weighed: Weighed, seen: list[Seen]) -> dict[str, Any]:
    """What to look at when only the consequence was logged, or an error that no rule knows."""
    unknown = weighed.first.get("python-exception")
    if unknown is not None and weighed.failed:
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
