#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: completion
short_description: Ask an endpoint for a real chat completion
version_added: 0.1.0
description:
  - Sends one greedy chat completion and returns the answer with its timing. It judges nothing.
  - The API key is read on the node from the file of the deployment's secrets and shows up nowhere.
options:
  url:
    description: Base URL of the endpoint.
    type: str
    required: true
  model:
    description: Name under which the model is served.
    type: str
    required: true
  prompt:
    description: What the user says.
    type: str
    default: "What is the capital of France? Answer in one word."
  max_tokens:
    description: Budget of the answer in tokens.
    type: int
    default: 64
  timeout:
    description: Seconds to wait for the whole answer.
    type: int
    default: 120
  name:
    description: Name of the deployment whose API key is used. Without it no key is sent.
    type: str
  extra:
    description: More fields of the request, as the chat completions API names them.
    type: dict
    default: {}
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
"""

EXAMPLES = r"""
- name: Ask
  dgx_spark.vllm.completion:
    url: http://192.0.2.11:8000
    model: qwen3-30b
    name: qwen3-30b
  register: answer
"""

RETURN = r"""
status:
  description: HTTP status; 0 when no answer came.
  returned: always
  type: int
body:
  description: The response, parsed when it is JSON, else a dict with the one key C(text).
  returned: always
  type: dict
seconds:
  description: From sending the request to the end of the answer.
  returned: always
  type: float
"""

import json
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.urls import open_url
from ansible_collections.dgx_spark.vllm.plugins.module_utils import files, paths


def api_key(deployment):
    """The API key of a deployment of this user, or null."""
    config = paths.config_path(paths.home(), deployment)
    return files.current(paths.secret_path(config, "VLLM_API_KEY"))[0]


def ask(url, body, key, timeout):
    """POST a chat completion: HTTP status (0 without an answer) and the body."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    try:
        response = open_url(
            url + "/v1/chat/completions",
            method="POST",
            data=json.dumps(body),
            headers=headers,
            timeout=timeout,
            use_proxy=False,
            http_agent="dgx_spark.vllm",
        )
        status, text = response.getcode(), to_text(response.read())
    except Exception as error:  # pylint: disable=broad-except
        status = getattr(error, "code", None) or 0
        text = to_text(error.read()) if status else to_text(error)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, {"text": text}


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "prompt": {"type": "str", "default": "What is the capital of France? Answer in one word."},
            "max_tokens": {"type": "int", "default": 64, "no_log": False},
            "timeout": {"type": "int", "default": 120},
            "name": {"type": "str"},
            "extra": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    body = {
        "model": parameters["model"],
        "messages": [{"role": "user", "content": parameters["prompt"]}],
        "max_tokens": parameters["max_tokens"],
        "temperature": 0,
    }
    body.update(parameters["extra"])
    key = api_key(parameters["name"]) if parameters["name"] else None
    started = time.monotonic()
    status, answer = ask(parameters["url"].rstrip("/"), body, key, parameters["timeout"])
    module.exit_json(changed=False, status=status, body=answer, seconds=round(time.monotonic() - started, 3))


if __name__ == "__main__":
    main()
