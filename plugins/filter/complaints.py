# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: complaints
short_description: What is wrong with the settings of a host, before anything is touched
version_added: 0.1.0
description:
  - Checks the model, the nodes and the wishes of one host and looks for variables of this collection that do not
    exist, with the nearest name that does. Needs no facts and no connection.
positional: _input, host, inventory, play
options:
  _input:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  host:
    description: The host to check.
    type: str
    required: true
  inventory:
    description: All hosts of the inventory, C(groups['all']).
    type: list
    elements: str
    required: true
  play:
    description: The hosts of this run, C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
problems: "{{ hostvars | dgx_spark.vllm.complaints(inventory_hostname, groups['all'], ansible_play_hosts_all) }}"
"""

RETURN = r"""
_value:
  description: Messages, each beginning with the name of the variable. Empty when all is well.
  type: list
  elements: str
"""

from functools import cache
from pathlib import Path

import yaml
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.settings import complaints


@cache
def known_variables():
    """The variables that the roles of this collection take."""
    names = set()
    for path in (Path(__file__).parents[2] / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            names.update(entry.get("options", {}))
    return frozenset(names)


def complain(hostvars, host, inventory, play):
    return complaints(host, lambda name: hostvars[name], inventory, play, known_variables())


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"complaints": complain}
