# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: smoke_evidence
short_description: What the wait for a completion left, as evidence for a diagnosis
version_added: 0.1.0
description:
  - Takes what M(dgx_spark.vllm.await_completion) registered as C(__smoke_result) on each node, reads the logs it kept
    on the controller, and adds image, version, model and flags of the plan.
positional: _input, hostvars, plan, model
options:
  _input:
    description: Names of the nodes of the deployment, the head first.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
  plan:
    description: The plan of the deployment.
    type: dict
    required: true
  model:
    description: The model.
    type: str
    required: true
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

EXAMPLES = r"""
diagnosis: "{{ nodes | dgx_spark.vllm.smoke_evidence(hostvars, vllm_plan, vllm_model) | dgx_spark.vllm.diagnose }}"
"""

RETURN = r"""
_value:
  description: C(logs) by node, C(response) of the head where one came, and C(config).
  type: dict
"""

from pathlib import Path


def smoke_evidence(nodes, hostvars, plan, model):
    results = {name: hostvars[name].get("__smoke_result") or {} for name in nodes}
    kept = {name: result["log_file"] for name, result in results.items() if result.get("log_file")}
    evidence = {
        "logs": {name: Path(path).read_text(encoding="utf-8") for name, path in kept.items()},
        "config": {
            "image": plan["serve"]["image"],
            "vllm": plan["serve"]["vllm_version"],
            "model": model,
            "flags": plan["serve"]["args"],
        },
    }
    response = results[nodes[0]].get("response")
    return evidence | {"response": response} if response else evidence


class FilterModule:
    """Ansible looks filters up here."""

    def filters(self):
        return {"smoke_evidence": smoke_evidence}
