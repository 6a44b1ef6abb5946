# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The data behind the command line: every row sourced, dated, well formed and true to its versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.findings import LEVELS, Finding
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.flags import allowed_values, known_flags
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.parsers import known_parsers
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.versions import holds, version
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import Wishes
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts

FILES = (
    "parsers",
    "flags",
    "images",
    "environment",
    "moe_backends",
    "remote_code",
    "serving",
    "architectures",
)
RELEASES = knowledge("images")["releases"]
PATTERNS = ("architecture", "alias", "template", "match", "model_type", "method", "algo", "pattern")
ROWS = {
    "images": ("tags", "references", "notices", "needs", "second_formats", "layers"),
    "flags": ("values", "refused_on_sm121"),
    "environment": ("rows",),
    "moe_backends": ("rows", "layers"),
    "remote_code": ("rows",),
    "parsers": ("rules", "needs_tokens"),
}


def rows() -> Iterator[tuple[str, dict]]:
    for file, groups in ROWS.items():
        for group in groups:
            for number, row in enumerate(knowledge(file)[group]):
                yield f"{file}.{group}[{number}] {row.get('id', '')}", row
    for kind, group in knowledge("parsers")["evidence"].items():
        for row in group:
            yield f"parsers.evidence.{kind} {row['id']}", row


ALL = dict(rows())


def all_mappings(node):
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from all_mappings(value)
    elif isinstance(node, list):
        for value in node:
            yield from all_mappings(value)


@pytest.mark.parametrize("name", ALL, ids=str)
def test_a_row_has_a_source_and_a_date(name):
    row = ALL[name]
    assert row["source"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["date"])
    assert row.get("why", "x").strip()


@pytest.mark.parametrize("file", FILES)
def test_patterns_compile_and_versions_are_versions(file):
    for row in all_mappings(knowledge(file)):
        for key in PATTERNS:
            if isinstance(row.get(key), str):
                re.compile(row[key])
        for key in ("since", "removed", "last", "version"):
            if isinstance(row.get(key), str):
                version(row[key])
            else:
                assert not isinstance(row.get(key), float), f"{row} has an unquoted version"
        if isinstance(row.get("since"), str) and isinstance(row.get("removed"), str):
            assert version(row["since"]) < version(row["removed"])
        if "level" in row:
            assert row["level"] in LEVELS
    for row in ALL.values():
        if isinstance(row.get("name"), str):
            re.compile(row["name"])


def test_ids_are_unique_and_kebab_case():
    for group in ("rules",):
        ids = [row["id"] for row in knowledge("parsers")[group]]
        assert len(ids) == len(set(ids))
        assert all(re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name) for name in ids)
    for row in all_mappings([knowledge("images")["notices"], knowledge("moe_backends"), knowledge("parsers")]):
        if {"what", "fix"} <= set(row):
            fields = {key: value for key, value in row.items() if key in Finding.__dataclass_fields__}
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", Finding(**fields).id)


def test_a_parser_row_names_parsers_that_exist():
    data = knowledge("parsers")
    for rule in [*data["rules"], *data["evidence"]["reasoning"], *data["evidence"]["tool"]]:
        for kind in ("reasoning", "tool"):
            for entry in rule.get(kind, ()):
                row = entry if isinstance(entry, dict) else {"name": entry}
                having = [at for at in RELEASES if row["name"] in known_parsers(kind, at)]
                assert having, f"{rule['id']}: {row['name']}"
                assert any(holds(row, at) for at in having), f"{rule['id']}: {row}"
        if rule.get("thinking") == "none":
            assert not rule.get("reasoning"), rule["id"]


def test_a_parser_row_can_match_and_has_a_known_thinking():
    data = knowledge("parsers")
    modes = {"none", "on", "off", "always", "adaptive"}
    for rule in data["rules"]:
        assert {"name", "architecture", "template"} & set(rule), rule["id"]
        told = rule["thinking"]
        values = {told} if isinstance(told, str) else {entry["value"] for entry in told}
        assert values <= modes, rule["id"]
        assert set(rule["source"]) <= set(data["sources"]), rule["id"]
        if isinstance(told, list):
            assert all(sum(holds(entry, at) for entry in told) == 1 for at in RELEASES), rule["id"]


def test_family_flags_exist_in_the_versions_they_claim():
    for rule in knowledge("parsers")["rules"]:
        for argument in rule.get("args", ()):
            for at in RELEASES:
                if holds(argument, at):
                    assert argument["flag"] in known_flags(at), f"{rule['id']} {at}"


def test_backends_exist_in_the_versions_they_claim():
    for row in knowledge("moe_backends")["rows"]:
        for at in RELEASES:
            if holds(row, at):
                assert "--moe-backend" in known_flags(at)
                assert row["value"] in allowed_values("--moe-backend", at)


def test_owned_flags_name_wishes():
    named = set(knowledge("flags")["owned"].values()) - {"the plan's model"}
    assert named <= set(Wishes.__dataclass_fields__)
    every = {name for row in knowledge("flags")["flags"] for name in row["names"]}
    assert set(knowledge("flags")["owned"]) <= every


def test_an_architecture_stands_once():
    names = [name for row in knowledge("architectures")["rows"] for name in row["names"]]
    assert len(names) == len(set(names)) > 350


def test_the_default_is_the_newest_release_looked_at():
    data = knowledge("images")
    assert data["default"]["version"] == data["releases"][-1]
    assert all(sum(holds(row, at) for row in data["tags"]) == 1 for at in data["releases"])


def test_parsers_match_the_registries_read():
    for at, kinds in shared_facts.load("facts/vllm-parsers.json").items():
        assert known_parsers("reasoning", at) == set(kinds["reasoning"]), at
        assert known_parsers("tool", at) == set(kinds["tool"]), at


def test_flags_match_the_options_read():
    for at in ("0.22.0", "0.25.1", "0.32.0", "0.33.0"):
        options = shared_facts.load(f"facts/vllm-serve-options-{at}.json")
        listed = {option["flags"][0] for option in options}
        assert listed <= known_flags(at), at
        for option in options:
            limited = allowed_values(option["flags"][0], at)
            if limited and option["choices"]:
                assert limited == set(option["choices"]), (at, option["flags"][0])
