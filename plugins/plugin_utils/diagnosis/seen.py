# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A rule that holds, with its place and evidence, and the finding that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..findings import Level
from .conditions import all_hold
from .rules import FactRule, Rule, filled

Confidence = Literal["high", "medium", "low"]
Origin = Literal["log", "state", "response", "compound"]

_CONFIDENCE: tuple[Confidence, ...] = ("high", "medium", "low")
_FIRSTHAND = frozenset(("source", "issue", "field-notes", "reproduced"))
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
    origin: Origin = "log"
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


def told(
    rules: Iterable[FactRule], facts: Mapping[str, Any], node: str, origin: Origin, version: str | None
) -> list[Seen]:
    """The rules over facts that hold, with the values for their texts."""
    seen = []
    for order, rule in enumerate(rules):
        if rule.in_force(version) and (held := all_hold(rule.when, facts)):
            values, evidence = held
            seen.append(Seen(rule, node, tuple(evidence[:4]), {**_plain(facts), **values}, order=order, origin=origin))
    return seen


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that texts may name: ``flag.max_model_len`` as ``flag_max_model_len``."""
    return {
        name.replace(".", "_"): value
        for name, value in facts.items()
        if isinstance(value, str | int | float) and len(str(value)) < 200
    }


def without_outweighed(seen: list[Seen]) -> list[Seen]:
    """What is left when rules that say more are there."""
    lighter = {name for one in seen for name in one.rule.outweighs}
    return [one for one in seen if one.rule.id not in lighter]
