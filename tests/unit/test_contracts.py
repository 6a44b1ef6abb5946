# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What one file promises and another must keep: defaults and argument specs, variables in README and specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())


def load(role: str, file: str) -> dict:
    path = ROOT / "roles" / role / file
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}


def options(role: str) -> dict:
    """All options of a role's entry points by name."""
    specs = load(role, "meta/argument_specs.yml")["argument_specs"].values()
    return {name: option for spec in specs for name, option in spec.get("options", {}).items()}


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_has_a_spec_and_every_spec_an_entry_point(role: str) -> None:
    entries = set(load(role, "meta/argument_specs.yml")["argument_specs"])
    tasks = {path.stem for path in (ROOT / "roles" / role / "tasks").glob("*.yml")}
    assert "main" in entries
    assert entries <= tasks


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_the_defaults_that_the_spec_tells(role: str) -> None:
    told = {name: option["default"] for name, option in options(role).items() if "default" in option}
    assert load(role, "defaults/main.yml").keys() <= options(role).keys()
    for name, value in load(role, "defaults/main.yml").items():
        if name in told:
            assert value == told[name], name


@pytest.mark.parametrize("role", ROLES)
def test_no_required_option_has_a_default(role: str) -> None:
    assert not {name for name, option in options(role).items() if option.get("required") and "default" in option}


def test_the_readme_and_the_inventories_speak_of_variables_that_exist() -> None:
    known = set().union(*(options(role) for role in ROLES))
    texts = [ROOT / "README.md", *(ROOT / "inventories").rglob("*.yml")]
    spoken = {name for path in texts for name in re.findall(r"\b(?:vllm|fabric)_[a-z_]+\b", path.read_text())}
    assert spoken - known == set()


def test_every_playbook_of_a_working_directory_exists() -> None:
    plays = yaml.safe_load((ROOT / "playbooks/init.yml").read_text(encoding="utf-8"))
    assert all((ROOT / "playbooks" / f"{name}.yml").exists() for name in plays[0]["vars"]["init_playbooks"])


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_sets_is_private_or_told(role: str) -> None:
    """A later check of the settings takes every other name of ours for a slip of the user's pen."""
    told = set().union(*(options(name) for name in ROLES))
    found = set()
    for path in (ROOT / "roles" / role / "tasks").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"^ *register: *(\w+)", text, re.MULTILINE))
        for facts in re.findall(r"ansible\.builtin\.set_fact:\n((?: {4,}.*\n)+)", text):
            indent = len(facts) - len(facts.lstrip())
            found.update(re.findall(rf"^ {{{indent}}}(\w+):", facts, re.MULTILINE))
    assert not {name for name in found - told if name.startswith(("vllm_", "ray_", "fabric_", "smoke_"))}
