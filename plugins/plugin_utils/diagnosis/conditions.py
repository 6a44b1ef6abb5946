# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Conditions over facts: the small language in which state, response and compound rules are written.

A condition is a mapping. ``fact`` names one fact exactly, ``key`` a regular expression for its path,
``log`` the id of a log rule (its value is how often it was seen). What is asked of the value: ``is``, ``in``,
``matches``, ``above``, ``below``, ``at_least``, ``truthy``,
``below_key`` (below the figure of another fact), ``present``; ``as`` keeps it for the texts.
``any``, ``all`` and ``not`` combine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

Facts = Mapping[str, Any]

_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)?")
_TRUE = {"yes", "true", "on", "1"}


@lru_cache(maxsize=2048)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of a rule, case-insensitive as messages change theirs between versions."""
    return re.compile(pattern, re.IGNORECASE)


def number(value: Any) -> float | None:
    """The number a value is or begins with; None when there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    match = _NUMBER.search(str(value))
    return float(match[0].replace(",", ".")) if match else None


def truthy(value: Any) -> bool:
    """Whether a fact says yes, in the ways systemd, YAML and people write it."""
    return str(value).strip().lower() in _TRUE if isinstance(value, str) else bool(value)


def _asked(condition: Mapping[str, Any], value: Any, facts: Facts, values: dict[str, Any]) -> bool:
    if "is" in condition and str(value).lower() != str(condition["is"]).lower():
        return False
    if "in" in condition and str(value).lower() not in {str(item).lower() for item in condition["in"]}:
        return False
    if "truthy" in condition and truthy(value) is not condition["truthy"]:
        return False
    if "matches" in condition:
        match = compiled(condition["matches"]).search(str(value)[:20000])
        if match is None:
            return False
        values.update({name: text for name, text in match.groupdict().items() if text is not None})
    for name in ("above", "below", "at_least"):
        if name in condition:
            figure, limit = number(value), float(condition[name])
            if (
                figure is None
                or not {"above": figure > limit, "below": figure < limit, "at_least": figure >= limit}[name]
            ):
                return False
    if "below_key" in condition:
        pattern = compiled(condition["below_key"])
        bounds = [number(other) for path, other in facts.items() if pattern.search(path)]
        own = number(value)
        if own is None or not any(bound is not None and own < bound for bound in bounds):
            return False
    if "as" in condition:
        values[condition["as"]] = value
    return True


def _candidates(condition: Mapping[str, Any], facts: Facts) -> Iterator[tuple[str, Any]]:
    if "log" in condition:
        yield f"log.{condition['log']}", facts.get(f"log.{condition['log']}", 0)
    elif "fact" in condition:
        if condition["fact"] in facts:
            yield condition["fact"], facts[condition["fact"]]
    else:
        pattern, between = compiled(condition["key"]), condition["key"].startswith("^nodes")
        yield from (
            (path, value)
            for path, value in facts.items()
            if path.startswith("nodes.") is between and not path.startswith("log.") and pattern.search(path)
        )


def holds(condition: Mapping[str, Any], facts: Facts, values: dict[str, Any], seen: list[str]) -> bool:
    """Whether one condition holds; fills ``values`` for the texts and ``seen`` with the facts behind it."""
    if "any" in condition:
        return any(holds(inner, facts, values, seen) for inner in condition["any"])
    if "all" in condition:
        return all(holds(inner, facts, values, seen) for inner in condition["all"])
    if "not" in condition:
        return not holds(condition["not"], facts, {}, [])
    if condition.get("present") is False:
        return next(_candidates(condition, facts), None) is None
    if "log" in condition and not {"at_least", "above", "below"} & set(condition):
        condition = {**condition, "above": 0}
    for path, value in _candidates(condition, facts):
        if _asked(condition, value, facts, values):
            if not path.startswith("log."):
                seen.append(f"{path}: {value}"[:300])
            return True
    return False


def all_hold(conditions: Sequence[Mapping[str, Any]], facts: Facts) -> tuple[dict[str, Any], list[str]] | None:
    """Values and evidence when every condition holds, else None."""
    values: dict[str, Any] = {}
    seen: list[str] = []
    if all(holds(condition, facts, values, seen) for condition in conditions):
        return values, seen
    return None


def flatten(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings and lists with dotted paths; a list of one adds no number to the path."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list | tuple) and len(tree) == 1:
        yield from flatten(tree[0], prefix)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from flatten(value, f"{prefix}.{index}" if prefix else str(index))
    else:
        yield prefix, tree
