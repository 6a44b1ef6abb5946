# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes docs/decisions.md and docs/diagnosis.md from the rules.

``python docs/make_diagnosis_pages.py`` writes the pages. With ``--measure NAME=FILE ...`` the cases in those
files are diagnosed first and the figures kept in docs/diagnosis_figures.yml; a test checks that the pages are
current.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(_DOCS.parent / ".collections"))

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis import diagnose, document  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis.rules import progress_rules  # noqa: E402

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KINDS = ("fault", "degraded", "wrapper", "signal", "noise")
_QUIET = {"healthy": "healthy", "still-loading": "loading"}


def judged(case: dict[str, Any]) -> str:
    """``right``, ``wrong`` or ``undecided`` for one case with a confirmed category."""
    evidence = {
        "config": case.get("config", {}),
        "logs": case.get("node_logs", {}),
        "state": case.get("state", {}),
        "response": case.get("response"),
    }
    result = diagnose(evidence)
    expected = case["expected"]["category"]
    categories = {rule.id: rule.category for _where, rule in document.all_rules()}
    if expected in _QUIET or expected == "undecided":
        loud = any(finding["level"] == "error" for finding in result["findings"])
        return "right" if result["verdict"] == _QUIET.get(expected, expected) and not loud else "wrong"
    if result["verdict"] == "undecided":
        return "undecided"
    first = categories.get(result["findings"][0]["id"]) if result["findings"] else None
    return "right" if result["verdict"] == "fault" and first == expected else "wrong"


def overview(figures: dict[str, Any]) -> str:
    """The page ``docs/diagnosis.md``: how the diagnosis works and how often it was right."""
    rules = [rule for _where, rule in document.all_rules()]
    kinds = {kind: sum(rule.kind == kind for rule in rules) for kind in _KINDS}
    columns = ("set", "cases", "right", "wrong", "undecided")
    rows = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in figures["sets"])]
    table = "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)
    text = (_DOCS / "diagnosis.md.in").read_text(encoding="utf-8")
    return text.format(**kinds, progress=len(progress_rules()), table=table, date=figures["date"])


def measure(name: str, file: Path) -> dict[str, Any]:
    """The figures of one file of cases."""
    cases = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    told = [judged(case) for case in cases]
    return {
        "set": name,
        "cases": len(cases),
        **{word: told.count(word) for word in ("right", "wrong", "undecided")},
    }


def main() -> None:
    """Measure where asked, then write both pages."""
    figures = yaml.safe_load((_DOCS / "diagnosis_figures.yml").read_text(encoding="utf-8"))
    if "--measure" in sys.argv:
        named = [argument.partition("=") for argument in sys.argv[sys.argv.index("--measure") + 1 :]]
        figures = {
            "date": datetime.date.today().isoformat(),
            "sets": [measure(name, Path(file)) for name, _equals, file in named],
        }
        head = "---\n# Written by docs/make_diagnosis_pages.py --measure; read for docs/diagnosis.md.\n"
        (_DOCS / "diagnosis_figures.yml").write_text(head + yaml.safe_dump(figures, sort_keys=False), encoding="utf-8")
    (_DOCS / "decisions.md").write_text(document.decisions(), encoding="utf-8")
    (_DOCS / "diagnosis.md").write_text(overview(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
