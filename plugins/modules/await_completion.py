#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: await_completion
short_description: Wait for a real chat completion and show meanwhile what vLLM is doing
version_added: 0.1.0
description:
  - Runs on all nodes of a deployment at once. On the head it ends with a completion, elsewhere it ends with the head's.
  - While it waits it prints each new stage of the start (waiting for the cluster, loading shard i of n, compiling).
  - Fails at once when a unit dies on any of the nodes, on that node first, with the last lines it logged.
  - This is an action plugin. The nodes only run short modules, so nothing is left behind when the play is interrupted.
options:
  name:
    description: Name of the deployment.
    type: str
    required: true
  nodes:
    description: Names of the nodes of the deployment, the head first.
    type: list
    elements: str
    required: true
  url:
    description: Base URL of the endpoint.
    type: str
    required: true
  model:
    description: Name under which the model is served.
    type: str
    required: true
  prompt:
    description: What is asked.
    type: str
    required: true
  max_tokens:
    description: Budget of the answer in tokens.
    type: int
    default: 64
  timeout:
    description: Seconds to wait for the completion.
    type: int
    default: 3600
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
attributes:
  check_mode:
    support: full
    details: In check mode nothing is waited for.
"""

EXAMPLES = r"""
- name: Believe only a real completion
  dgx_spark.vllm.await_completion:
    name: qwen3-30b
    nodes: [spark-1, spark-2]
    url: http://192.0.2.11:8000
    model: Qwen/Qwen3-30B-A3B
    prompt: What is the capital of France?
"""

RETURN = r"""
response:
  description: The body of the completion.
  returned: on the head
  type: dict
seconds:
  description: From the start of the task to the completion.
  returned: always
  type: float
answer_seconds:
  description: What the completion itself took.
  returned: on the head
  type: float
log_file:
  description: File on the controller with the last lines that the unit logged meanwhile. It goes when the run ends.
  returned: on failure
  type: str
"""
