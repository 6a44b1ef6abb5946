# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Weighing what the rules saw: verdict, root cause, what else.

The root cause is the earliest fault over all nodes in the attempt that matters. Rules of a lower tier (the peer is
gone, NCCL failed, the service was restarted) only speak when no more telling fault was seen; wrappers never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal

from ..findings import LEVELS, Finding, Level
from . import config as configuration
from . import logs, response, state
from .conditions import all_hold
from .rules import FactRule, Rule, compound_rules, filled, response_rules, state_rules

Verdict = Literal["fault", "healthy", "loading", "undecided"]
Confidence = Literal["high", "medium", "low"]

_CONFIDENCE: tuple[Confidence, ...] = ("high", "medium", "low")
_FIRSTHAND = frozenset(("source", "issue", "field-notes", "reproduced"))
_ALSO_SEEN = 3
_HEAD_LINES = 400
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
            "id": self.rule.id, "level": level or self.rule.level, "confidence": self.confidence, "node": self.node,
            "evidence": list(self.evidence), "what": filled(self.rule.what, self.values),
            "why": filled(self.rule.why, self.values), "fix": filled(self.rule.fix, self.values),
            "source": f"{self.rule.source} ({_RULES_PAGE}#{self.rule.id})",
        }


def _told(rules: Iterable[FactRule], facts: Mapping[str, Any], node: str, origin: Any, version: str | None) -> list[Seen]:
    seen = []
    for order, rule in enumerate(rules):
        if rule.in_force(version) and (held := all_hold(rule.when, facts)):
            values, evidence = held
            seen.append(Seen(rule, node, tuple(evidence[:4]), {**_plain(facts), **values}, order=order, origin=origin))
    return seen


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that texts may name: ``flag.max_model_len`` as ``flag_max_model_len``."""
    return {name.replace(".", "_"): value for name, value in facts.items()
            if isinstance(value, str | int | float) and len(str(value)) < 200}


def _without_outweighed(seen: list[Seen]) -> list[Seen]:
    lighter = {name for one in seen for name in one.rule.outweighs}
    return [one for one in seen if one.rule.id not in lighter]


# ------------------------------------------------------------------------------------------------------------ logs
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
        for hit in hits:
            result.counts[hit.rule.id] = result.counts.get(hit.rule.id, 0) + hit.count
            result.first.setdefault(hit.rule.id, hit)
            if hit.rule.kind not in ("fault", "degraded"):
                continue
            seen = Seen(hit.rule, hit.node, tuple(hit.evidence), hit.values, hit.stamp, hit.order)
            survived = ready is not None and hit.last_order < ready and hit.rule.kind == "fault"
            passing = served > hit.last_order and not wrapped
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


# ----------------------------------------------------------------------------------------------------------- state
def _node_facts(states: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {node: state.facts(part) for node, part in states.items()}


def _across(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What differs between nodes: how many values a fact has, how far its figures lie apart."""
    facts: dict[str, Any] = {}
    named = {node: part for node, part in nodes.items() if node}
    if len(named) < 2:
        return facts
    for path in {path for part in named.values() for path in part if path.startswith("state.")}:
        values = [part[path] for part in named.values() if path in part]
        if len(values) < 2:
            continue
        facts[f"nodes.distinct.{path[6:]}"] = len({str(value) for value in values})
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            facts[f"nodes.spread.{path[6:]}"] = max(values) - min(values)
    return facts


# ---------------------------------------------------------------------------------------------------------- engine
def read_response(body: Any, **context: Any) -> list[Finding]:
    """The findings of one response alone, the telling one first.

    ``context``: ``request`` (the body that was sent), ``model``, ``thinking`` (none, on, off, always, adaptive),
    ``flags`` or ``reasoning_parser`` and ``tool_call_parser`` as the server was started, ``vllm`` (version).
    """
    return [
        Finding(one.rule.level, one.rule.id, filled(one.rule.what, one.values), filled(one.rule.why, one.values),
                filled(one.rule.fix, one.values), one.rule.source)
        for one in _from_response(body, context)
    ]


def _from_response(body: Any, config: Mapping[str, Any]) -> list[Seen]:
    settings = configuration.config_facts(config)
    for name in ("reasoning_parser", "tool_call_parser"):
        if config.get(name):
            settings[f"flag.{name}"] = config[name]
    facts = {**settings, **response.response_facts(body, config)}
    seen = _told(response_rules(), facts, "", "response", settings.get("vllm"))
    return [replace(one, evidence=(_excerpt(facts),)) for one in
            sorted(_without_outweighed(seen), key=lambda one: (LEVELS.index(one.rule.level), one.rule.tier, one.order))]


def _excerpt(facts: Mapping[str, Any]) -> str:
    if facts.get("kind") == "error":
        return f"status {facts.get('status') or '?'}: {facts.get('error', '')}"[:400]
    parts = [f"{name}={facts[name]!r:.120}" for name in
             ("finish", "completion_tokens", "max_tokens", "content", "reasoning", "tool_calls") if name in facts]
    return ", ".join(parts)


def diagnose(evidence: Mapping[str, Any], **context: Any) -> dict[str, Any]:
    """Verdict and findings for logs, one response, the state of nodes and the configuration, as far as given."""
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
    quotes = _weigh_logs([stream for node, part in states.items()
                          for stream in logs.read(node, state.quoted(part), version)])
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
        seen += [one for one in _told(state_rules(), {**settings, **told, **across}, "", "state", version)
                 if one.rule.id not in {other.rule.id for other in seen}]
    merged = {**settings, **told, **{path: value for facts in nodes.values() for path, value in facts.items()}}
    merged["state_text"] = "\n".join(str(facts.get("state_text", "")) for facts in nodes.values())
    compounds = [_placed(one, weighed, quotes) for one in _told(compound_rules(), merged, "", "compound", version)]
    body = evidence.get("response")
    spoken = _from_response(body, {**config, **{f"flag.{k[5:]}": v for k, v in settings.items() if k.startswith("flag.")}}
                            ) if body not in (None, "") else []
    everything = _without_outweighed(
        weighed.faults + weighed.degraded + compounds + seen + spoken
        + [replace(one, origin="state") for one in quotes.faults + quotes.degraded])
    return _verdict(everything, weighed, body, bool(texts), bool(states), config)


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
    return replace(one, node=first.node, stamp=first.stamp, order=first.order, evidence=(*lines, *one.evidence)[:5],
                   values=values)


def _verdict(seen: list[Seen], weighed: _Logs, body: Any, have_logs: bool, have_state: bool,
             config: Mapping[str, Any]) -> dict[str, Any]:
    answered = [one for one in seen if one.origin == "response" and one.rule.kind == "fault"]
    faults = [one for one in seen if one.origin != "response" and one.rule.kind == "fault"
              and one not in weighed.degraded]
    rest = [one for one in seen if one not in faults and one not in answered and one.rule.kind != "wrapper"]
    alive = _is_completion(body)
    good = alive and not answered
    hard = [one for one in faults if one.origin in ("log", "compound")]
    if hard and good and not weighed.ready:
        return _result("undecided", [
            _note("contradictory-evidence", "The logs hold a fault that ends a start, yet the server answered well.",
                  "They cannot be from the same run of the server.",
                  "Collect logs and response again, of the same minute: `docker ps` for the age of the container, "
                  "`journalctl --user -u vllm-… --since` its start."),
            *(one.finding("warning") for one in hard[:_ALSO_SEEN])])
    root, rivals = _root(faults)
    if root is None and rivals:
        return _result("undecided", [
            _note("contradictory-evidence", "Two nodes hold different faults and nothing says which came first.",
                  "Without times the first cause cannot be told from what it did to the other node.",
                  "Collect the logs again with times (`docker logs --timestamps`, `journalctl -o short-iso`) of the same "
                  "minutes on all nodes, then diagnose again."),
            *(replace(one, doubt=1).finding("warning") for one in rivals[:_ALSO_SEEN])])
    if answered and (root is None or root.rule.tier > 1 or weighed.ready):
        others = [one for one in answered[1:] if one.rule.category != answered[0].rule.category]
        return _result("fault", [answered[0].finding(), *(one.finding("note") for one in others[:_ALSO_SEEN]),
                                 *(one.finding("warning") for one in faults[:1])])
    if root is not None:
        others = [one for one in faults if one is not root and one.rule.category != root.rule.category
                  and one.rule.tier <= root.rule.tier]
        also = list({one.rule.id: one for one in others}.values())[:_ALSO_SEEN]
        notable = [one for one in rest if one.origin == "state" and one.rule.category != root.rule.category]
        return _result("fault", [root.finding(), *(one.finding("note") for one in also),
                                 *(one.finding() for one in notable[:_ALSO_SEEN])])
    return _without_fault(rest, weighed, good, have_logs, have_state, seen)


def _without_fault(rest: list[Seen], weighed: _Logs, good: bool, have_logs: bool, have_state: bool,
                   seen: list[Seen]) -> dict[str, Any]:
    told = [one.finding() for one in rest if one.rule.kind != "signal"]
    told.sort(key=lambda finding: LEVELS.index(finding["level"]))
    wrappers = [one for one in seen if one.rule.kind == "wrapper"]
    if good or (weighed.ready and not weighed.wrapped):
        return _result("healthy", told)
    if weighed.wrapped or wrappers or "python-exception" in weighed.counts:
        return _result("undecided", [*_wrapped(weighed), *told])
    step = weighed.progress
    if step is not None or "shm-broadcast-wait" in weighed.counts:
        return _result("loading", [*told, _loading(step, weighed)])
    healthy = [one for one in seen if one.rule.category == "healthy"]
    if healthy:
        return _result("healthy", told)
    return _result("undecided", [*told, _note(
        "nothing-recognised", "Nothing in the evidence is known as a fault, as progress or as a working server.",
        "The part of the log that matters may be missing." if have_logs else "There is no log in the evidence.",
        "Collect the whole log of the last start on every node (`journalctl --user -u vllm-…`, `docker logs` of the last "
        "container), `journalctl -k` for memory and NIC faults, and one response.")])


def _loading(step: logs.Progress | None, weighed: _Logs) -> dict[str, Any]:
    if step is None:
        return _note("still-loading", "The server's processes are busy; no fault is in the log.",
                     "Compiling and loading keep the workers from reading their queue for minutes.",
                     "Wait; look at `docker stats` and the GPU's load if it lasts more than half an hour.")
    return _note(
        "still-loading", f"The server is still starting: {filled(step.rule.detail, step.values)}.",
        f"This stage takes about {step.rule.seconds_normal} s here, more at the first start.",
        "Wait. Fetch the checkpoint to the node's own disk beforehand so that a start does not include the download.",
        step.rule.source, (), step.node)


def _wrapped(weighed: _Logs) -> list[dict[str, Any]]:
    """What to look at next when only the consequence was logged."""
    unknown = weighed.first.get("python-exception")
    lines = [line for hit in weighed.first.values() if hit.rule.kind == "wrapper" for line in hit.evidence[:1]]
    findings = []
    if unknown is not None:
        findings.append(_note(
            "unrecognised-error", f"An error no rule knows: {unknown.values.get('message', unknown.evidence[0])[:200]}",
            "It is the first exception in the log that is not a consequence of another one.",
            "Look at the lines above it; search the message with the image's vLLM version; try the same model with "
            "another image or without the newest setting.", evidence=tuple(unknown.evidence), node=unknown.node,
            level="warning"))
    else:
        named = " ".join(weighed.first[name].rule.fix for name in weighed.first
                         if weighed.first[name].rule.kind == "wrapper" and weighed.first[name].rule.fix)
        findings.append(_note(
            "cause-not-in-evidence", "The log holds only the consequence of an error, not the error itself.",
            "Wrapper messages are printed by processes that lost another one; the cause is in that one's log.",
            f"{named[:400]} Then: the other node's log, `journalctl -k` on each node for killed processes, and the lines "
            "before the first of these.", evidence=tuple(lines[:3]), level="warning"))
    return findings


def _note(name: str, what: str, why: str, fix: str, source: str = "docs/diagnosis.md",
          evidence: tuple[str, ...] = (), node: str = "", level: Level = "note") -> dict[str, Any]:
    return {"id": name, "level": level, "confidence": "low", "node": node, "evidence": list(evidence), "what": what,
            "why": why, "fix": fix, "source": source}


def _is_completion(body: Any) -> bool:
    return isinstance(body, Mapping) and bool(body.get("choices"))


def _result(verdict: Verdict, findings: list[dict[str, Any]]) -> dict[str, Any]:
    return {"verdict": verdict, "findings": findings}
