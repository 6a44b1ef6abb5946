# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading logs as a stream: which rules hit where and when, and how far a start came.

Speed comes from three cheap questions asked before any regular expression: was this line seen before but for
its digits, has it one of the words that rules begin with, and is the line loud enough for the rule. Memory is
bounded: a hit is kept once an attempt, with its first lines and a count.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from . import lines
from .rules import LogRule, ProgressRule, log_rules, progress_rules

_DIGITS = b"0123456789"
# Lower case, and a space for whatever does not belong to a word: one pass over the bytes of a line.
_WORDS = bytes(
    ord(chr(code).lower()) if (chr(code).isalnum() and code < 128) or code == 95 else 32 for code in range(256)
)
_REMEMBERED_LINES, _REMEMBERED_LENGTH = 20_000, 600
_LOOK_BACK_LINES = 200
_EVIDENCE_LINES = 3
# Enough to tell "again and again"; beyond it a hit is only counted, and what never matched is not tried
# again.
_TRIES = 200


@dataclass(slots=True)
class Hit:
    """One rule seen in one attempt of one stream."""

    rule: LogRule
    node: str
    stream: str
    attempt: int
    order: int
    stamp: float | None
    level: str
    values: dict[str, str]
    evidence: list[str] = field(default_factory=list)
    count: int = 1
    last_order: int = 0


@dataclass(slots=True)
class _Seen:
    """What is known about all lines that differ in digits only: how loud, which rules may speak on them."""

    level: str
    rules: tuple[LogRule | ProgressRule, ...]
    tries: int = 0


@dataclass(slots=True)
class Progress:
    """The last stage a stream reported in an attempt."""

    rule: ProgressRule
    node: str
    order: int
    values: dict[str, str]


@dataclass(slots=True)
class Stream:
    """What one node (or one compose service on it) said."""

    node: str
    name: str
    attempt: int = 0
    lines: int = 0
    hits: dict[tuple[int, str], Hit] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    served: dict[int, int] = field(default_factory=dict)
    generated: dict[int, int] = field(default_factory=dict)
    troubled: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """A rule in the index: its place in the order of trying, and the words that must be there besides."""

    order: int
    rule: LogRule | ProgressRule
    besides: frozenset[bytes]


@cache
def word_index() -> dict[bytes, tuple[_Entry, ...]]:
    """First word to the rules that begin with it. A trigger is a word, or several joined by ``+``."""
    ranks = {"noise": 0, "fault": 1, "degraded": 2, "signal": 3, "wrapper": 4}
    index: dict[bytes, list[_Entry]] = {}
    ordered: list[tuple[int, LogRule | ProgressRule]] = [
        (ranks[rule.kind] * 10_000 + order, rule) for order, rule in enumerate(log_rules())
    ]
    ordered += [(50_000 + order, step) for order, step in enumerate(progress_rules())]
    for order, rule in ordered:
        for trigger in rule.words:
            first, *others = trigger.encode().split(b"+")
            index.setdefault(first, []).append(_Entry(order, rule, frozenset(others)))
    return {word: tuple(entries) for word, entries in index.items()}


def candidates(key: bytes) -> tuple[LogRule | ProgressRule, ...]:
    """The rules worth trying on a line (given without its digits), noise first, then by file order."""
    text = key.translate(_WORDS) + b" "
    words, index = text.split(), word_index()
    named = b"error " in text or b"exception " in text
    if not named and index.keys().isdisjoint(words):
        return ()
    there = set(words)
    if named:
        there.add(b"anyerror")  # the name of an exception ends so, whatever it begins with
    found = {
        entry.order: entry.rule for word in there if word in index for entry in index[word] if entry.besides <= there
    }
    return tuple(found[order] for order in sorted(found))


def split(text: str | Iterable[str]) -> Iterator[str]:
    """Lines of a text, or of anything that gives lines; progress bars redraw with carriage returns."""
    if isinstance(text, str):
        yield from text.splitlines()
        return
    for line in text:
        if "\r" in line:
            yield from line.splitlines()
        else:
            yield line.rstrip("\n")


class Reader:
    """Feeds the lines of one node to the rules."""

    def __init__(self, node: str, vllm_version: str | None = None) -> None:
        self.node = node
        self.version = vllm_version
        self.streams: dict[str, Stream] = {}
        self._order = 0
        self._known: dict[bytes, _Seen] = {}
        self._recent: deque[str] = deque(maxlen=_LOOK_BACK_LINES)
        self._waiting: tuple[str, tuple[LogRule, ...]] | None = None

    def read(self, text: str | Iterable[str]) -> list[Stream]:
        """All lines of a text; returns the streams found in it."""
        known, remember = self._known, self._recent.append
        order = self._order
        for line in split(text):
            order += 1
            remember(line)
            if len(line) > lines.LINE_LIMIT or line.startswith('{"log":') or "\x1b" in line:
                line = lines.shorten(line)
            key = line.encode("utf-8", "replace").translate(None, _DIGITS)
            seen = known.get(key)
            if seen is None:
                seen = self._asked(line, key)
                if len(known) < _REMEMBERED_LINES and len(key) < _REMEMBERED_LENGTH:
                    known[key] = seen
            if seen.rules or self._waiting:
                self._order = order
                self._try(line, seen)
        for stream in self.streams.values():
            stream.lines = order
        return list(self.streams.values()) or [Stream(self.node, "", lines=order)]

    def _asked(self, line: str, key: bytes) -> _Seen:
        found = candidates(key)
        if not found:
            return _Seen("", ())
        level = lines.level(line)
        return _Seen(
            level,
            tuple(
                rule
                for rule in found
                if isinstance(rule, ProgressRule)
                or not (
                    (level == "info" and not rule.quiet)
                    or (level == "error" and rule.kind == "noise")
                    or not rule.in_force(self.version)
                )
            ),
        )

    def _try(self, line: str, seen: _Seen) -> None:
        stream = self._stream(line)
        waiting, self._waiting = self._waiting, None
        if waiting and not seen.level:
            joined = f"{waiting[0]} {line.strip()}"
            for broken in waiting[1]:
                if match := broken.pattern.search(joined):
                    self._hit(stream, broken, joined, "", match)
                    return
        unmatched: list[LogRule] = []
        silent: list[LogRule | ProgressRule] = []
        for rule in seen.rules:
            if isinstance(rule, ProgressRule):
                if not self._progress(stream, rule, line):
                    silent.append(rule)
                continue
            known = stream.hits.get((stream.attempt, rule.id))
            if known and known.count > _TRIES:
                known.count += 1
                known.last_order = self._order
                return
            match = rule.pattern.search(line)
            if match is None:
                if rule.kind == "fault":
                    unmatched.append(rule)
                if seen.tries > _TRIES:
                    silent.append(rule)
                continue
            if rule.kind == "noise":
                seen.rules = ()
                return
            self._hit(stream, rule, line, seen.level, match)
            if rule.kind not in ("signal", "wrapper"):
                return
        seen.tries += 1
        if silent:
            seen.rules = tuple(rule for rule in seen.rules if rule not in silent)
        if unmatched:
            self._waiting = (line, tuple(unmatched))

    def _stream(self, line: str) -> Stream:
        name = lines.service(line) if " | " in line[:80] else ""
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Stream(self.node, name)
        return stream

    def _begin(self, stream: Stream) -> None:
        if stream.troubled or stream.attempt in stream.ready:
            stream.attempt += 1
            stream.troubled = False

    def _hit(self, stream: Stream, rule: LogRule, line: str, level: str, match: re.Match[str]) -> None:
        if rule.kind in ("fault", "wrapper"):
            stream.troubled = True
        values = {name: text for name, text in match.groupdict().items() if text is not None}
        known = stream.hits.get((stream.attempt, rule.id))
        if known is None:
            known = Hit(
                rule,
                self.node,
                stream.name,
                stream.attempt,
                self._order,
                self._stamp(line),
                level,
                values,
                last_order=self._order,
            )
            stream.hits[stream.attempt, rule.id] = known
        else:
            known.count += 1
            known.last_order = self._order
            known.values = {**values, **known.values}
            if level == "error":
                known.level = "error"
        if len(known.evidence) < _EVIDENCE_LINES:
            text = line.strip()[:400]
            if text not in known.evidence:
                known.evidence.append(text)

    def _stamp(self, line: str) -> float | None:
        stamp = lines.stamp(line)
        if stamp is None:
            for earlier in reversed(self._recent):
                if (stamp := lines.stamp(earlier)) is not None:
                    break
        return stamp

    def _progress(self, stream: Stream, rule: ProgressRule, line: str) -> bool:
        match = rule.pattern.search(line)
        if match is None:
            return False
        if rule.begins:
            self._begin(stream)
        values = {name: text for name, text in match.groupdict().items() if text is not None}
        if rule.done and values.get("rate") == "0.0":
            return True
        stream.progress[stream.attempt] = Progress(rule, self.node, self._order, values)
        if rule.done:
            stream.ready.setdefault(stream.attempt, self._order)
            if rule.stage in ("serving", "generating"):
                stream.served[stream.attempt] = self._order
            if rule.stage == "generating":
                stream.generated[stream.attempt] = self._order
        return True


def read(node: str, text: str | Iterable[str], vllm_version: str | None = None) -> list[Stream]:
    """The streams of one node's log."""
    return Reader(node, vllm_version).read(text)
