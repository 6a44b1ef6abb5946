# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each rule by itself: complete, found on its samples, silent on near misses, shadowed by none, linear."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis import diagnose, engine, logs, rules
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge

_DATA = Path(__file__).with_name("data")
_LOG_SAMPLES: dict[str, dict[str, list[str]]] = yaml.safe_load(
    (_DATA / "diagnosis_log_samples.yml").read_text(encoding="utf-8")
)
_FACT_SAMPLES: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    (_DATA / "diagnosis_fact_samples.yml").read_text(encoding="utf-8")
)
_FACT_RULES = {"response": rules.response_rules, "state": rules.state_rules, "compound": rules.compound_rules}
_ROWS = [
    *knowledge("log_rules")["rules"],
    *knowledge("log_rules")["compounds"],
    *knowledge("state_rules")["rules"],
    *knowledge("response_rules")["rules"],
]
_KINDS = {"fault", "degraded", "wrapper", "signal", "noise"}


def _hits(line: str) -> list[str]:
    return [hit.rule.id for stream in logs.read("node", line) for hit in stream.hits.values()]


def test_a_rule_is_complete():
    for row in _ROWS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row["id"])
        for name in ("what", "fix", "source", "date", "category"):
            assert str(row.get(name, "")).strip(), f"{row['id']} has no {name}"
        assert row["evidence"] in {"source", "issue", "field-notes", "memory", "reproduced"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(row["date"]))
        assert row.get("kind", "fault") in _KINDS
        if row.get("kind", "fault") in ("fault", "degraded"):
            assert row["why"].strip(), "a rule that people read says why"


def test_ids_are_unique():
    names = [row["id"] for row in _ROWS]
    assert len(names) == len(set(names))


def test_rules_that_outweigh_name_real_rules():
    names = {row["id"] for row in _ROWS}
    assert {name for row in _ROWS for name in row.get("outweighs", ())} <= names


def test_every_log_rule_has_samples_and_none_is_left_over():
    assert set(_LOG_SAMPLES) == {rule.id for rule in rules.log_rules()}
    assert all(sample["positive"] and sample["near_miss"] for sample in _LOG_SAMPLES.values())


@pytest.mark.parametrize("rule", rules.log_rules(), ids=lambda rule: rule.id)
def test_a_log_rule_hits_its_samples_and_no_other_rule_shadows_it(rule: rules.LogRule):
    for line in _LOG_SAMPLES[rule.id]["positive"]:
        if rule.kind == "noise":
            assert rule.pattern.search(line)
            assert _hits(line) == [], "noise leaves nothing behind"
            continue
        hits = _hits(line)
        assert rule.id in hits, f"{hits} instead on: {line}"
        told = [
            name
            for name in hits
            if name in {other.id for other in rules.log_rules() if other.kind in ("fault", "degraded")}
        ]
        assert told in ([], [rule.id]) or rule.kind in ("signal", "wrapper")


def test_a_log_rule_is_silent_on_its_near_misses():
    for rule in rules.log_rules():
        for line in _LOG_SAMPLES[rule.id]["near_miss"]:
            if rule.kind == "noise":
                assert not rule.pattern.search(line)
            else:
                assert rule.id not in _hits(line), line


def test_texts_of_a_log_rule_are_filled_from_its_samples():
    for rule in rules.log_rules():
        for line in _LOG_SAMPLES[rule.id]["positive"]:
            for stream in logs.read("node", line):
                for hit in stream.hits.values():
                    if hit.rule.id == rule.id:
                        finding = engine.Seen(rule, "node", (), hit.values).finding()
                        assert "?" not in finding["what"]
                        assert not re.search(r"\{[a-z_]+(\||\})", finding["what"] + finding["why"] + finding["fix"])


def test_words_of_a_log_rule_can_be_found():
    for rule in rules.log_rules():
        assert all(re.fullmatch(r"[a-z_]+(\+[a-z_]+)*", word) for word in rule.words), "whole words, no digits"


@pytest.mark.parametrize(
    "rule",
    [*rules.log_rules(), *rules.progress_rules()],
    ids=lambda rule: getattr(rule, "id", getattr(rule, "stage", "")),
)
def test_patterns_are_linear_on_long_lines(rule: rules.LogRule | rules.ProgressRule):
    assert not re.search(r"(?<![\\\[])\.[*+]", rule.pattern.pattern), "an unbounded dot"
    words = " ".join(rule.words)
    for text in (
        "a" * 6000,
        f"{words} " * (6000 // (len(words) + 1)),
        "/" * 6000,
        "1 " * 3000,
        "\\" * 6000,
        f"{words} {'x' * 5900}",
        f"{'x' * 5900} {words}",
    ):
        start = time.process_time()
        rule.pattern.search(text)
        assert time.process_time() - start < 0.25, f"slow on {text[:60]!r}"


@pytest.mark.parametrize("family", _FACT_RULES)
def test_every_rule_over_facts_has_samples(family: str):
    assert set(_FACT_SAMPLES[family]) == {rule.id for rule in _FACT_RULES[family]()}


def _told(evidence: dict[str, Any], family: str) -> list[str]:
    if family == "response":
        return [one.rule.id for one in engine._from_response(evidence["response"], evidence.get("config", {}))]
    return [finding["id"] for finding in diagnose(evidence)["findings"]] + [f"verdict {diagnose(evidence)['verdict']}"]


_FACT_CASES = [(family, name) for family, samples in _FACT_SAMPLES.items() for name in samples]


@pytest.mark.parametrize(("family", "name"), _FACT_CASES, ids=[name for _family, name in _FACT_CASES])
def test_a_rule_over_facts_holds_on_its_sample_only(family: str, name: str):
    rule = next(rule for rule in _FACT_RULES[family]() if rule.id == name)
    sample = _FACT_SAMPLES[family][name]
    positive, near_miss = _told(sample["positive"], family), _told(sample["near_miss"], family)
    if rule.kind in ("signal", "wrapper"):
        assert name not in near_miss
        return
    assert name in positive, positive
    if rule.kind == "fault":
        assert positive[0] == name, f"shadowed: {positive}"
    assert name not in near_miss, near_miss
