# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules of the diagnosis, read from YAML into frozen dataclasses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ..findings import Level
from ..knowledge import knowledge
from ..versions import holds as in_force
from .conditions import compiled

# fault: a root cause. degraded: works, but not as it should. wrapper: announces an error printed elsewhere.
# signal: means something only together with other facts. noise: looks bad and means nothing.
Kind = Literal["fault", "degraded", "wrapper", "signal", "noise"]

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_BRACED = re.compile(r"\{(?P<parts>[a-z][a-z_]*(?:\|[^{}]*)?)\}")


@dataclass(frozen=True, slots=True)
class Rule:
    """What is common to all rules: who it is and what it tells."""

    id: str
    category: str
    kind: Kind
    level: Level
    tier: int
    what: str
    why: str
    fix: str
    source: str
    date: str
    evidence: str
    since: str | None
    removed: str | None
    outweighs: tuple[str, ...]

    def in_force(self, at: str | None) -> bool:
        """Whether the rule speaks about this vLLM version; unknown versions get every rule."""
        match = _VERSION.search(at or "")
        return match is None or in_force({"since": self.since, "removed": self.removed}, match[0])


@dataclass(frozen=True, slots=True)
class LogRule(Rule):
    """A rule over single log lines.

    ``words`` are triggers of which a line must have one before the pattern is tried: a whole word in lower
    case and without digits, or several joined by ``+``;
    ``loud`` rules count at warning level also when nothing else went wrong; ``quiet`` ones match INFO lines;
    those that ``recur`` spoil requests although the server goes on.
    """

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    loud: bool
    quiet: bool
    recurs: bool


@dataclass(frozen=True, slots=True)
class FactRule(Rule):
    """A rule over facts: of a response, of the state of nodes, of what the logs hold together."""

    when: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ProgressRule:
    """What a line says about where a start is."""

    stage: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    detail: str
    seconds_normal: int
    begins: bool
    done: bool
    source: str


def _common(row: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    level: Level = "error" if kind == "fault" else "warning" if kind in ("degraded", "wrapper") else "note"
    return {
        "id": row["id"],
        "category": row["category"],
        "kind": row.get("kind", kind),
        "level": row.get("level", level),
        "tier": row.get("tier", 1),
        "what": row["what"],
        "why": row.get("why", ""),
        "fix": row["fix"],
        "source": row["source"],
        "date": str(row["date"]),
        "evidence": row["evidence"],
        "since": row.get("since"),
        "removed": row.get("removed"),
        "outweighs": tuple(row.get("outweighs", ())),
    }


@cache
def log_rules() -> tuple[LogRule, ...]:
    """The rules over lines, in the order of the file: more special ones first."""
    return tuple(
        LogRule(
            **_common(row, row.get("kind", "fault")),
            words=tuple(row["words"]),
            pattern=compiled(row["pattern"]),
            loud=row.get("loud", False),
            quiet=row.get("quiet", False),
            recurs=row.get("recurs", False),
        )
        for row in knowledge("log_rules")["rules"]
    )


def _fact_rules(rows: Any) -> tuple[FactRule, ...]:
    return tuple(FactRule(**_common(row, row.get("kind", "fault")), when=tuple(row["when"])) for row in rows)


@cache
def compound_rules() -> tuple[FactRule, ...]:
    """Rules over what several lines and facts say together."""
    return _fact_rules(knowledge("log_rules")["compounds"])


@cache
def notes() -> Mapping[str, Rule]:
    """What is said when no rule decides, by name."""
    return {row["id"]: Rule(**_common(row, "signal")) for row in knowledge("log_rules")["notes"]}


@cache
def state_rules() -> tuple[FactRule, ...]:
    """Rules over systemd, Docker, memory, fabric and metrics of the nodes."""
    return _fact_rules(knowledge("state_rules")["rules"])


@cache
def response_rules() -> tuple[FactRule, ...]:
    """Rules over one response of the server."""
    return _fact_rules(knowledge("response_rules")["rules"])


@cache
def progress_rules() -> tuple[ProgressRule, ...]:
    """The stages of a start, in their usual order."""
    return tuple(
        ProgressRule(
            stage=row["stage"],
            words=tuple(row["words"]),
            pattern=re.compile(row["pattern"]),
            detail=row["detail"],
            seconds_normal=row["seconds_normal"],
            begins=row.get("begins", False),
            done=row.get("done", False),
            source=row["source"],
        )
        for row in knowledge("progress")["rules"]
    )


def filled(text: str, values: Mapping[str, Any]) -> str:
    """``{name|other_name|words}`` replaced by the first name that the evidence gave, else by the words."""
    return _BRACED.sub(lambda match: _first(match["parts"].split("|"), values), text)


def _first(parts: list[str], values: Mapping[str, Any]) -> str:
    for name in parts:
        if values.get(name) not in (None, ""):
            return str(values[name]).strip()
    return parts[-1] if len(parts) > 1 else "?"
