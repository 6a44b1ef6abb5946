# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules as a page to read and as a list for machines; both are made from the rules, so they cannot drift."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..knowledge import knowledge
from .rules import Rule, compound_rules, log_rules, progress_rules, response_rules, state_rules

_PLACEHOLDER = re.compile(r"\{([a-z][a-z_]*)(?:\|[^{}]*)?\}")
_SEEN_IN = {
    "log": "a line of a log",
    "compound": "several lines and facts",
    "state": "the state of a node",
    "response": "a response",
}
_EVIDENCE = {
    "source": "text read in the program's source",
    "issue": "public report",
    "field-notes": "field notes",
    "memory": "wording from memory",
    "reproduced": "reproduced here",
}


def all_rules() -> list[tuple[str, Rule]]:
    """Every rule with where it looks, in the order of the files."""
    families: tuple[tuple[str, Iterable[Rule]], ...] = (
        ("response", response_rules()),
        ("log", log_rules()),
        ("compound", compound_rules()),
        ("state", state_rules()),
    )
    return [(where, rule) for where, rules in families for rule in rules]


def listing() -> list[dict[str, Any]]:
    """Every rule that can be a finding: id, level, what, fix, source."""
    return [
        {
            "id": rule.id,
            "level": rule.level,
            "what": _plain(rule.what),
            "fix": _plain(rule.fix),
            "source": rule.source,
        }
        for _where, rule in all_rules()
        if rule.kind in ("fault", "degraded")
    ]


def _plain(text: str) -> str:
    """Placeholders as readers know them: ``{need|more}`` as ``NEED``."""
    return _PLACEHOLDER.sub(lambda match: match[1].upper(), text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def decisions() -> str:
    """The page ``docs/decisions.md``: the questions in order, under each the rules with an anchor a rule."""
    rules = all_rules()
    parts = [
        "# Decisions: from what you see to what to change",
        "",
        "<!-- Made by docs/make_diagnosis_pages.py from the rules. Change the rules, not this page. -->",
        "",
        "Go through the questions in order. Each rule has an anchor of its own, which the findings of `diagnose` link to.",
        "Words in CAPITALS are read from the evidence.",
        "",
        *(
            f"{number}. [{section['title']}](#{_anchor(section['title'])})"
            for number, section in enumerate(knowledge("decision_flow")["sections"], start=1)
        ),
        f"{len(knowledge('decision_flow')['sections']) + 1}. [It is slow, but not stuck](#it-is-slow-but-not-stuck)",
    ]
    for section in knowledge("decision_flow")["sections"]:
        parts += ["", f"## {section['title']}", "", section["question"]]
        for category in section["categories"]:
            for where, rule in rules:
                if rule.category == category and rule.kind in ("fault", "degraded"):
                    parts += _entry(where, rule)
    parts += [
        "",
        "## It is slow, but not stuck",
        "",
        "These are stages of a start, not faults. The figures are what a stage takes on a GB10 as a rule; the first "
        "start takes longer.",
        "",
        "| stage | what it is | seconds |",
        "|---|---|---|",
    ]
    parts += [
        f"| {step.stage} | {_cell(_plain(step.detail))} | {step.seconds_normal} |"
        for step in progress_rules()
    ]
    return "\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _entry(where: str, rule: Rule) -> list[str]:
    versions = "".join(
        (
            f" Since vLLM {rule.since}." if rule.since else "",
            f" Gone in vLLM {rule.removed}." if rule.removed else "",
        )
    )
    return [
        "",
        f'### <a id="{rule.id}"></a>{rule.id}',
        "",
        f"**{_plain(rule.what)}** {_plain(rule.why)}{versions}",
        "",
        f"Fix: {_plain(rule.fix)}",
        "",
        f"Seen in {_SEEN_IN[where]}; {rule.level}. Source: {rule.source} ({_EVIDENCE[rule.evidence]}, {rule.date}).",
    ]


def overview(figures: dict[str, Any]) -> str:
    """The page ``docs/diagnosis.md``: how the diagnosis works and how often it was right."""
    rules = all_rules()
    kinds = {
        kind: sum(1 for _where, rule in rules if rule.kind == kind)
        for kind in ("fault", "degraded", "wrapper", "signal", "noise")
    }
    table = ["| set | cases | right | wrong | undecided |", "|---|---|---|---|---|"]
    table += [
        f"| {row['set']} | {row['cases']} | {row['right']} | {row['wrong']} | {row['undecided']} |"
        for row in figures["sets"]
    ]
    return _OVERVIEW.format(
        **kinds, progress=len(progress_rules()), table="\n".join(table), date=figures["date"]
    )


_OVERVIEW = """\
# How the diagnosis works

<!-- Made by docs/make_diagnosis_pages.py from the rules. Change the rules or the script, not this page. -->

The filter `dgx_spark.vllm.diagnose` takes what is known - logs of all nodes, one response, the state of the nodes, the
configuration; each part is optional - and returns a verdict with findings. The first finding is the root cause. All
rules are data with source and date; [decisions.md](decisions.md) lists them in the order in which to look.

## Verdicts

| verdict | meaning |
|---|---|
| `fault` | a root cause was found; it is the first finding, at level error (warning where the request is to blame) |
| `healthy` | the server answers; findings, if any, are warnings and notes |
| `loading` | a start goes on; the last finding says which stage and how long it takes as a rule |
| `undecided` | the evidence contradicts itself or holds only consequences; the findings say what to look at next |

## How the root cause is chosen

1. Lines are read as a stream. Each rule names words that a line must have before its pattern is tried, so that long
   logs are cheap; a line seen before but for its digits is not asked again.
2. Lines at level INFO never count as faults, warnings only when the start failed as well. Messages that announce an
   error printed elsewhere (`EngineDeadError`, `RPC call ... timed out`, exit codes, tracebacks of the API server) are
   kept as wrappers: they tell that something failed, never what.
3. A log may hold several attempts. The last one with a fault counts, unless a later one came up. A fault before the
   server was ready, or before it went on serving, did not stop it and is no root cause.
4. Of the faults that are left the earliest over all nodes is the root cause. Symptoms that another fault explains (a
   peer is missing, NCCL failed, a restart loop) have a lower tier and only speak when nothing better was seen.
5. Rules over several facts (a JIT compilation and then a timeout; an RDMA error and a kernel that reserves memory)
   outweigh the plain ones they are made of.
6. Two nodes with different faults and no times, or a good answer beside a dead start, give `undecided`.

Confidence is high when the rule's text was read in the program's source or in a public report, lower when its wording
is from memory, when the finding is only a symptom, or when the evidence is doubtful.

## Figures

{fault} faults, {degraded} degradations, {wrapper} wrappers, {signal} signals that mean something only together,
{noise} kinds of noise, {progress} lines of progress.

{table}

Measured on {date}. The public cases are logs, responses and states from issue threads with the confirmed cause; the
variations are the same kinds of faults written anew, with other versions, values, order and noise. Right means: the
category of the first finding is the confirmed one, and nothing is at level error where nothing is wrong.
Speed: `python benchmarks/diagnose.py`.
"""
