# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tensors of a model, worked out from its config and the tables ``blocks.yml`` and ``models.yml``.

A table says "rows, columns" of each tensor with the names of config.json; here those are read and worked out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

from .knowledge import knowledge

Number = int | float
_TERM = re.compile(r"\s*([+-])?\s*([^+\-]+)")


@dataclass(frozen=True, slots=True)
class Term:
    """A product in an expression: ``sign * factor * factor ...``; a factor is a number or a name."""

    sign: int
    multiplied: tuple[int | str, ...]
    divided: tuple[int | str, ...]


Expression = tuple[Term, ...]


@cache
def expression(text: str) -> Expression:
    """``"2*heads*head_dim + rank/8"`` as terms. Sums of products with whole-number division, nothing else."""
    terms = []
    for sign, body in _TERM.findall(text):
        multiplied: list[int | str] = []
        divided: list[int | str] = []
        for part in body.split("*"):
            first, *rest = (factor.strip() for factor in part.split("/"))
            multiplied.append(int(first) if first.isdigit() else first)
            divided += [int(factor) if factor.isdigit() else factor for factor in rest]
        terms.append(Term(-1 if sign == "-" else 1, tuple(multiplied), tuple(divided)))
    return tuple(terms)


def _conditions(marks: Iterable[str]) -> tuple[tuple[str, bool], ...]:
    """``if X`` and ``unless X`` as the name and whether it must be set."""
    found = (mark.split() for mark in marks)
    return tuple((words[1], words[0] == "if") for words in found if words[0] in ("if", "unless"))


@cache
def _alternative(text: str) -> tuple[Expression, tuple[tuple[str, bool], ...]]:
    """``"expression | if X"`` as the expression and its conditions."""
    body, *marks = (part.strip() for part in text.split("|"))
    return expression(body), _conditions(marks)


def _number(value: Any) -> Number | None:
    """``value`` as a number if it is a finite one (true counts as 1), else None."""
    if isinstance(value, int):
        return value
    return value if isinstance(value, float) and isfinite(value) else None


class Dimensions:
    """The numbers of one config by their present names: its own, other names, defaults, formulas."""

    __slots__ = ("_busy", "_circle", "_defaults", "_known", "_raw", "_rules")

    def __init__(
        self,
        raw: Mapping[str, Any],
        rules: Mapping[str, list[Any]] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._raw = raw
        self._rules = rules or {}
        self._defaults = defaults or {}
        self._known: dict[str, Number | None] = {}
        self._busy: set[str] = set()
        # Set when a rule led back to a name that is being worked out: what it gave is not the answer.
        self._circle = False

    def get(self, name: str) -> Number | None:
        """The number called ``name``, or None where config, defaults and formulas are silent."""
        if name in self._known:
            return self._known[name]
        if name in self._busy:  # a rule that leads back to its own name means the config's key
            self._circle = True
            return self._plain(name)
        self._busy.add(name)
        try:
            value = self._first(self._rules.get(name))
            if value is None:
                value = self._plain(name)
            if value is None:
                value = self._first(_tables()["formulas"].get(name))
        finally:
            self._busy.discard(name)
        if not self._busy:
            self._circle = False
        if not self._circle:
            self._known[name] = value
        return value

    def _plain(self, name: str) -> Number | None:
        raw = self._raw
        value = _number(raw.get(name))
        if value is not None:
            return value
        for alias in _tables()["aliases"].get(name, ()):
            value = _number(raw.get(alias))
            if value is not None:
                return value
        return None if name in raw else _number(self._defaults.get(name))  # null in the file means none

    def _first(self, alternatives: Iterable[Any] | None) -> Number | None:
        for alternative in alternatives or ():
            terms, conditions = _alternative(str(alternative))
            if all(bool(self.get(name)) is wanted for name, wanted in conditions):
                value = self.value(terms)
                if value is not None:
                    return value
        return None

    def value(self, terms: Expression) -> Number | None:
        """The value of an expression, or None if a name in it has none."""
        total: Number = 0
        for term in terms:
            product: Number = term.sign
            for factor in term.multiplied:
                number = factor if isinstance(factor, int) else self.get(factor)
                if number is None:
                    return None
                product *= number
            for factor in term.divided:
                number = factor if isinstance(factor, int) else self.get(factor)
                if not number:
                    return None
                product //= number
            total += product
        return total

    def with_numbers(self, numbers: Mapping[str, Number], rules: Mapping[str, list[Any]]) -> Dimensions:
        """The same with numbers and rules of one layer in front."""
        return Dimensions({**self._raw, **numbers}, {**self._rules, **rules}, self._defaults)


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One row of a block: the shape still in names."""

    name: str
    shape: tuple[Expression, ...]
    conditions: tuple[tuple[str, bool], ...]
    copies: Expression | None
    experts: bool
    plain: bool
    whole: bool
    lookup: bool
    uncounted: bool
    place: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor, or ``copies`` equal ones.

    ``read`` is how many of the copies a token reads (experts it is routed to; 0 for tables read by row);
    ``plain`` tensors are never quantized, ``whole`` ones not split by tensor parallelism; ``place`` is
    where it lies in a pipeline: ``layer``, ``embedding``, ``head``, ``first``, ``last`` or ``both``.
    """

    name: str
    rows: int
    columns: int
    copies: int
    read: int
    plain: bool
    whole: bool
    place: str
    uncounted: bool = False

    @property
    def elements(self) -> int:
        """Numbers in all copies."""
        return self.rows * self.columns * self.copies


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = knowledge("blocks")
    return tables


@cache
def _block(name: str) -> tuple[TensorRow, ...]:
    rows = []
    for tensor, text in _tables()["blocks"][name].items():
        shape, *marks = (part.strip() for part in str(text).split("|"))
        conditions = _conditions(marks)
        copies = next((expression(mark[5:]) for mark in marks if mark.startswith("each ")), None)
        place = next((mark for mark in marks if mark in ("embedding", "head", "first", "last", "both")), "last")
        rows.append(
            TensorRow(
                name=tensor,
                shape=tuple(expression(part) for part in shape.split(",")),
                conditions=conditions,
                copies=copies,
                experts="experts" in marks,
                plain="plain" in marks,
                whole="whole" in marks,
                lookup="lookup" in marks or place == "embedding",
                uncounted="uncounted" in marks,
                place=place,
            )
        )
    return tuple(rows)


@cache
def _reference(text: str) -> tuple[str, tuple[tuple[str, bool], ...], tuple[TensorRow, ...]]:
    """``"prefix:block | if X"`` as prefix, conditions and the block's rows."""
    path, *marks = (part.strip() for part in text.split("|"))
    prefix, _colon, block = path.rpartition(":")
    conditions = _conditions(marks)
    return (f"{prefix}." if prefix else "", conditions, _block(block))


def tensors(references: Iterable[str], dimensions: Dimensions, in_layer: bool) -> tuple[list[Tensor], list[str]]:
    """The tensors of these blocks, and the names of numbers that were needed and are nowhere to be found."""
    found: list[Tensor] = []
    missing: list[str] = []
    for reference in references:
        prefix, conditions, rows = _reference(reference)
        if any(bool(dimensions.get(name)) is not wanted for name, wanted in conditions):
            continue
        for row in rows:
            if any(bool(dimensions.get(name)) is not wanted for name, wanted in row.conditions):
                continue
            shape: list[int] = []
            for terms in row.shape:
                size = dimensions.value(terms)
                if size is None or size < 0:
                    missing += [
                        name
                        for term in terms
                        for name in (*term.multiplied, *term.divided)
                        if isinstance(name, str) and (dimensions.get(name) or -1) < 0
                    ]
                    break
                shape.append(int(size))
            else:
                copies = 1
                if row.experts:
                    copies = max(int(dimensions.get("num_experts") or 0), 0)
                elif row.copies is not None:
                    copies = max(int(dimensions.value(row.copies) or 0), 0)
                read = copies
                if row.experts:
                    read = max(min(copies, int(dimensions.get("num_experts_per_tok") or copies)), 0)
                elif row.lookup:
                    read = 0
                columns = 1
                for size in shape[1:]:
                    columns *= size
                found.append(
                    Tensor(
                        name=prefix + row.name,
                        rows=shape[0],
                        columns=columns,
                        copies=copies,
                        read=read,
                        plain=row.plain or len(shape) != 2,
                        whole=row.whole or len(shape) == 1,
                        place="layer" if in_layer else row.place,
                        uncounted=row.uncounted,
                    )
                )
    return found, missing


@cache
def number_keys() -> tuple[str, ...]:
    """Every key of config.json that holds a number, by all its names."""
    aliases = _tables()["aliases"]
    return tuple(dict.fromkeys(key for name, others in aliases.items() for key in (name, *others)))


def unknown_row() -> dict[str, Any]:
    """The row for a model that has none of its own."""
    return _row("unknown")


# Entries of models.yml that stand for no model type.
_NOT_MODELS = frozenset({"about", "unknown"})


@cache
def _index() -> dict[str, str]:
    """Every model type and architecture that a row stands for."""
    index: dict[str, str] = {}
    for name, row in knowledge("models").items():
        if name in _NOT_MODELS:
            continue
        index[name] = name
        for other in row.get("also", ()):
            index.setdefault(other, name)
    return index


@cache
def _row(name: str) -> dict[str, Any]:
    row = knowledge("models")[name]
    if "like" not in row:
        return dict(row)
    merged = dict(_row(row["like"]))
    for key, value in row.items():
        if key in ("like", "also"):
            continue
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def model_row(*names: str) -> tuple[str, dict[str, Any]] | None:
    """The first of these model types and architectures with a row in ``models.yml``: its name and row."""
    for name in names:
        found = _index().get(name)
        if found is not None:
            return found, _row(found)
    return None
