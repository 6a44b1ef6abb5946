# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What `vllm serve` of a version accepts, and the user's own arguments held against it.

Written after FlexibleArgumentParser (vLLM 0.33 utils/argparse_utils.py): underscores are dashes, ``--x.key``
sets one key of a JSON argument, booleans are negated with ``--no-`` and, from 0.33 on, ``--enable-`` and
``--disable-`` are each other's opposite.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .checkpoint import InputError
from .findings import Finding
from .knowledge import knowledge
from .versions import holds, version

_NUMBER = re.compile(r"-\d+(\.\d+)?")
_SHORT = re.compile(r"-(O|cc|ac|sc|dc|asc)(?=[\d.]|$)")
_ROPE = re.compile(r"rope_(scaling|parameters|theta)")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command line: ``flag`` in its listed form, ``words`` as they are written."""

    flag: str
    words: tuple[str, ...]

    @property
    def value(self) -> str:
        """What follows the flag, joined by blanks; empty for a switch."""
        written = self.words[0].split("=", 1)
        return " ".join([*written[1:], *self.words[1:]])


@cache
def known_flags(at: str) -> frozenset[str]:
    """Every flag a version lists."""
    return frozenset(name for row in knowledge("flags")["flags"] if holds(row, at) for name in row["names"])


@cache
def _history() -> Mapping[str, Mapping[str, Any]]:
    return {name: row for row in knowledge("flags")["flags"] for name in row["names"]}


@cache
def allowed_values(flag: str, at: str) -> frozenset[str]:
    """The values a version takes for a flag; empty where they are not limited."""
    rows = knowledge("flags")["values"]
    return frozenset(name for row in rows if row["flag"] == flag and holds(row, at) for name in row["names"])


@cache
def listed_form(word: str, at: str) -> str:
    """A written flag in the form the tables list: without value, key, negation and underscores."""
    name = word.partition("=")[0]
    short = _SHORT.match(name)
    if not name.startswith("--"):
        return short[0] if short else name.partition(".")[0]
    name = name.partition(".")[0].replace("_", "-")
    known = known_flags(at)
    if name in known:
        return name
    if name.startswith("--no-") and f"--{name[5:]}" in known:
        return f"--{name[5:]}"
    if version(at) >= version(knowledge("flags")["pairs_since"]):
        for prefix, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
            if name.startswith(prefix) and other + name.removeprefix(prefix) in known:
                return other + name.removeprefix(prefix)
    return name


def knows(flag: str, at: str) -> bool:
    """Whether a version has a flag, in whatever form it is written."""
    return listed_form(flag, at) in known_flags(at)


def split_arguments(words: Sequence[str], at: str) -> tuple[Argument, ...]:
    """A command line in arguments. InputError when a word belongs to none."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            found.append([word])
        elif not found:
            raise InputError("extra_args", f"expected flags with their values, got {word!r} in front of any")
        else:
            found[-1].append(word)
    return tuple(Argument(listed_form(group[0], at), tuple(group)) for group in found)


def check_extra(words: Sequence[str], at: str, strict: bool) -> tuple[tuple[Argument, ...], tuple[Finding, ...]]:
    """The user's own arguments, held against a version.

    InputError for a flag that a wish sets, for a flag or value the version does not know. Where the image may
    hold more than the release (``strict`` false), the unknown is passed on with a finding.
    """
    arguments, findings = split_arguments(words, at), []
    owned = knowledge("flags")["owned"]
    for argument in arguments:
        if argument.flag in owned:
            raise InputError(
                "extra_args",
                f"expected no {argument.words[0]}: ask for it with {owned[argument.flag]}, "
                "so that the plan counts with it",
            )
        problem = _problem(argument, at)
        if problem and strict:
            raise InputError("extra_args", f"expected flags of vLLM {at}: {problem}")
        if problem:
            findings.append(_unproven(problem, at))
    return arguments, tuple(findings)


def _problem(argument: Argument, at: str) -> str | None:
    if argument.flag not in known_flags(at):
        return f"{argument.words[0]} is unknown there; {_what_became_of(argument.flag, at)}"
    values = allowed_values(argument.flag, at)
    if values and argument.value and argument.value.replace("-", "_") not in values:
        return f"{argument.flag} takes {', '.join(sorted(values))}, not {argument.value}"
    return None


def _what_became_of(flag: str, at: str) -> str:
    row = _history().get(flag)
    if row is None:
        near = difflib.get_close_matches(flag, known_flags(at), n=1)
        return f"did you mean {near[0]}?" if near else "no release looked at has it"
    if version(row["since"]) > version(at):
        return f"it came with {row['since']}"
    return f"it went with {row['removed']}"


def check_value(wish: str, flag: str, value: str, at: str, strict: bool) -> tuple[Finding, ...]:
    """A wished value, held against a version and this GPU. InputError naming the wish when it is refused."""
    values = allowed_values(flag, at)
    if values and value not in values and strict:
        raise InputError(wish, f"expected one of {', '.join(sorted(values))} for vLLM {at}, got {value!r}")
    return tuple(
        Finding(
            level="error",
            id="value-not-on-gb10",
            what=f"{flag} {value} does not run on SM 12.1.",
            why=row["why"],
            fix=f"Choose another value for vllm_{wish}.",
            source=row["source"],
        )
        for row in knowledge("flags")["refused_on_sm121"]
        if row["flag"] == flag and row["value"] == value
    )


def asks_rope_scaling(words: Sequence[str], at: str) -> bool:
    """Whether the user's arguments set rope parameters, and with them a context beyond the native one."""
    return any(
        argument.flag in ("--hf-overrides", "--rope-scaling", "--rope-theta")
        and _ROPE.search(" ".join(argument.words).replace("-", "_")) is not None
        for argument in split_arguments(words, at)
    )


def speculative_config(method: str, num_tokens: int, model: str | None) -> str:
    """The JSON of ``--speculative-config``."""
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": num_tokens}
    if model:
        config["model"] = model
    return json.dumps(config)


def needs_draft_model(method: str) -> bool:
    """Whether a speculative method needs a draft model that the target checkpoint does not hold."""
    row = knowledge("flags")["without_draft_model"]
    return method not in row["names"] and re.search(row["pattern"], method) is None


def _unproven(problem: str, at: str) -> Finding:
    return Finding(
        level="warning",
        id="argument-not-in-release",
        what=f"vllm_extra_args: {problem}.",
        why=f"The release {at} would refuse it; this image may hold more, so it is passed on.",
        fix="Check with `vllm serve --help=all` in the image.",
        source="knowledge/flags.yml",
    )
