# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules as a page to read and as a list for machines: made from the rules, so they cannot drift."""

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
    rules, sections = all_rules(), knowledge("decision_flow")["sections"]
    parts = [
        "# Decisions: from what you see to what to change",
        "",
        "<!-- Made by docs/make_diagnosis_pages.py from the rules. Change the rules, not this page. -->",
        "",
        "Go through the questions in order. Each rule has an anchor, to which findings of `diagnose` link.",
        "Words in CAPITALS are read from the evidence.",
        "",
        *(
            f"{number}. [{section['title']}](#{_anchor(section['title'])})"
            for number, section in enumerate(sections, start=1)
        ),
        f"{len(sections) + 1}. [It is slow, but not stuck](#it-is-slow-but-not-stuck)",
    ]
    for section in sections:
        parts += ["", f"## {section['title']}", "", section["question"]]
        for category in section["categories"]:
            for where, rule in rules:
                if rule.category == category and rule.kind in ("fault", "degraded"):
                    parts += _entry(where, rule)
    parts += [
        "",
        "## It is slow, but not stuck",
        "",
        "Stages of a start, not faults. The figures are what a stage takes on a GB10 as a rule; the first "
        "start takes longer.",
        "",
        "| stage | what it is | seconds |",
        "|---|---|---|",
    ]
    parts += [f"| {step.stage} | {_cell(_plain(step.detail))} | {step.seconds_normal} |" for step in progress_rules()]
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
