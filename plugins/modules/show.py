#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: Print a text as it is, or write it to a file on the controller
version_added: 0.1.0
description:
  - Prints a page line by line, where M(ansible.builtin.debug) would print it as JSON.
  - Runs on the controller and touches no node.
options:
  text:
    description: What to print.
    type: str
    required: true
  file:
    description: File on the controller to write the text to instead of printing it.
    type: path
attributes:
  action:
    support: full
    description: An action plugin does the work; there is nothing to run on a node.
  check_mode:
    support: full
    description: Prints as always; a file is compared but not written.
  diff_mode:
    support: none
    description: There is nothing to compare.
author:
  - dgx_spark.vllm maintainers (@dgx-spark-vllm)
"""

EXAMPLES = r"""
- name: Show a plan
  dgx_spark.vllm.show:
    text: "{{ plan | dgx_spark.vllm.plan_page }}"

- name: Keep it for a machine
  dgx_spark.vllm.show:
    text: "{{ plan | dgx_spark.vllm.plan_page('json') }}"
    file: plan.json
"""

RETURN = r"""
file:
  description: The file written, if one was asked for.
  returned: when O(file) is given
  type: str
"""
