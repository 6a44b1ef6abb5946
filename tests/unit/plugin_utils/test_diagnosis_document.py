# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The pages about the diagnosis are current, every rule has its place, and whole cases are told right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis import document
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_SPEC = importlib.util.spec_from_file_location("make_diagnosis_pages", _DOCS / "make_diagnosis_pages.py")
assert _SPEC
assert _SPEC.loader
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)
_REMEDY = "run python docs/make_diagnosis_pages.py"


def test_the_page_of_decisions_is_current():
    assert (_DOCS / "decisions.md").read_text(encoding="utf-8") == document.decisions(), _REMEDY


def test_the_page_of_the_diagnosis_is_current():
    figures = yaml.safe_load((_DOCS / "diagnosis_figures.yml").read_text(encoding="utf-8"))
    assert (_DOCS / "diagnosis.md").read_text(encoding="utf-8") == pages.overview(figures), _REMEDY


def test_every_category_has_one_place_in_the_flow():
    placed = [category for section in knowledge("decision_flow")["sections"] for category in section["categories"]]
    assert len(placed) == len(set(placed))
    told = {rule.category for _where, rule in document.all_rules() if rule.kind in ("fault", "degraded")}
    assert told == set(placed)


def test_every_rule_that_can_be_a_finding_has_an_anchor_and_is_listed():
    page = document.decisions()
    rules = [rule for _where, rule in document.all_rules() if rule.kind in ("fault", "degraded")]
    assert all(f'<a id="{rule.id}"></a>' in page for rule in rules)
    assert [row["id"] for row in document.listing()] == [rule.id for rule in rules]
    assert all(set(row) == {"id", "level", "what", "fix", "source"} for row in document.listing())


_VARIATIONS = yaml.safe_load(
    (Path(__file__).with_name("data") / "diagnosis_variations.yml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", _VARIATIONS, ids=lambda case: case["id"])
def test_faults_written_anew_are_told_right(case):
    assert pages.judged(case) == "right"


def test_public_cases_are_told_right():
    file = shared_facts.shared_dir() / "cases" / "cases.yml"
    figures = pages.measure("public cases", file)
    assert figures["right"] >= 0.95 * figures["cases"], figures
