#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a checkpoint says about itself, read without downloading its weights."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_facts
short_description: Read what a checkpoint says about itself, without downloading its weights
version_added: 0.1.0
description:
  - Reads C(config.json), C(hf_quant_config.json), C(tokenizer_config.json), the chat template, the names and
    sizes of all files, the sizes of all tensors (from the headers of the safetensors files, by range
    requests) and the text of reasoning and tool parsers that the repository ships.
  - The source is a local directory, a config file, the local Hugging Face cache, or the hub.
  - A revision is resolved once to a commit, so that everything later in the play speaks of the same files.
  - Nothing is written and no weights are downloaded.
  - Needs nothing but Python's standard library.
options:
  model:
    description:
      - A repository on the hub (C(owner/name)), a directory with a checkpoint, or a config file alone.
    type: str
    required: true
  revision:
    description: Branch, tag or commit on the hub.
    type: str
    default: main
  source:
    description:
      - Where to look for a repository. V(auto) takes the cache when O(revision) is a commit that is there
        with its weights, else the hub, else (with a warning) the cache when the hub cannot be reached.
      - Local paths are read as they are, whatever is set here.
    type: str
    choices: [auto, hub, cache]
    default: auto
  endpoint:
    description:
      - Address of the hub.
      - Default is the variable E(HF_ENDPOINT), else the public hub.
    type: str
  cache:
    description:
      - Folder of the hub's cache on this node (the one that holds C(models--owner--name)).
      - Default follows E(HF_HUB_CACHE) and E(HF_HOME).
    type: path
  token_file:
    description:
      - File with a read token, for gated and private repositories.
      - Default is the variable E(HF_TOKEN), else the file that C(hf auth login) writes.
    type: path
  token:
    description:
      - The token itself. It is kept out of command lines, logs and results; O(token_file) is to be preferred.
    type: str
  tensors:
    description: Whether to read the sizes of the tensors. Costs one small request for each weight file.
    type: bool
    default: true
  timeout:
    description: Seconds to wait for each answer of the hub.
    type: int
    default: 20
attributes:
  check_mode:
    support: full
    description: The module only reads.
  diff_mode:
    support: none
    description: Nothing changes.
author:
  - dgx_spark.vllm maintainers (@dgx-spark-vllm)
"""

EXAMPLES = r"""
- name: Read a checkpoint from the hub, pinned to what main is now
  dgx_spark.vllm.checkpoint_facts:
    model: Qwen/Qwen3-30B-A3B-Instruct-2507
  register: checkpoint

- name: Read a gated one, with a token from a file of mode 0600
  dgx_spark.vllm.checkpoint_facts:
    model: meta-llama/Llama-3.1-8B-Instruct
    token_file: ~/.config/dgx-spark/hf-token

- name: Read a directory
  dgx_spark.vllm.checkpoint_facts:
    model: /srv/models/my-finetune

- name: Plan it
  ansible.builtin.debug:
    msg: "{{ checkpoint.model | dgx_spark.vllm.plan([{'name': 'spark1'}]) }}"
"""

RETURN = r"""
model:
  description:
    - The C(model) input of the filter P(dgx_spark.vllm.plan#filter).
    - Keys that the checkpoint does not give are left out.
  returned: success
  type: dict
  contains:
    id:
      description: The repository or path as given.
      type: str
    config:
      description: config.json.
      type: dict
    quant_config:
      description: hf_quant_config.json, if there is one.
      type: dict
    tokenizer_config:
      description: tokenizer_config.json, if there is one.
      type: dict
    chat_template:
      description: The chat template, from its own file or from tokenizer_config.json.
      type: str
    files:
      description: Names of all files.
      type: list
      elements: str
    weight_bytes:
      description: Bytes of the weight files that vLLM would load. Left out when a file is missing.
      type: int
    tensors:
      description: Tensor name to bytes; the experts of a layer are summed under C(experts.*).
      type: dict
    parser_files:
      description: File name to text, for the parsers that the repository ships.
      type: dict
revision:
  description: The commit that was read; empty for a path.
  returned: success
  type: str
source:
  description: Where it was read, one of V(directory), V(file), V(cache), V(hub).
  returned: success
  type: str
path:
  description: The directory that was read; empty for the hub.
  returned: success
  type: str
card:
  description:
    - What the hub says about the repository (author, license, gated, base_model, tags, last_modified).
    - Empty for other sources.
  returned: success
  type: dict
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.checkpoint_files import (
    CheckpointError,
    Folder,
    Repository,
    SingleFile,
    local_path,
    read_checkpoint,
)
from ..module_utils.huggingface import (
    COMMIT,
    REPO_ID,
    Hub,
    HubError,
    HubUnreachable,
    cache_from,
    cached_snapshot,
    endpoint_from,
    token_from,
)


class CheckpointFacts:
    """Chooses the source, reads it, and says where it read."""

    def __init__(self, params: dict[str, Any], environ: dict[str, str]) -> None:
        self.params = params
        self.environ = environ
        self.warnings: list[str] = []

    def run(self) -> dict[str, Any]:
        """The module's result; raises HubError or CheckpointError."""
        model = str(self.params["model"]).strip()
        path = local_path(model)
        if os.path.isdir(path):
            return self._result("directory", Folder(path), path=os.path.abspath(path))
        if os.path.isfile(path):
            folder = os.path.dirname(os.path.abspath(path))
            if os.path.basename(path) == "config.json":
                return self._result("directory", Folder(folder), path=folder)
            return self._result("file", SingleFile(path), path=os.path.abspath(path))
        if not REPO_ID.match(model):
            raise CheckpointError(
                f"model {model!r} is neither an existing directory or file nor a repository (owner/name)"
            )
        return self._repository(model)

    def _repository(self, model: str) -> dict[str, Any]:
        wanted, revision = self.params["source"], self.params["revision"]
        cached = self._cached(model, revision) if wanted != "hub" else None
        offline = self.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        if cached and (wanted == "cache" or offline):
            return cached
        if cached and COMMIT.match(revision) and "weight_bytes" in cached["model"]:
            return cached
        if wanted == "cache" or offline:
            why = "source is cache" if wanted == "cache" else "HF_HUB_OFFLINE is set"
            folder = cache_from(self.environ, self.params["cache"])
            raise CheckpointError(
                f"{model} at {revision!r} is not in the cache {folder}, and {why}, so the hub was not asked"
            )
        try:
            return self._hub(model, revision)
        except HubUnreachable as error:
            if not cached:
                raise
            self.warnings.append(f"{error} Its copy in the cache was read ({cached['revision'][:12]}).")
            return cached

    def _cached(self, model: str, revision: str) -> dict[str, Any] | None:
        found = cached_snapshot(cache_from(self.environ, self.params["cache"]), model, revision)
        if not found or not os.path.isfile(os.path.join(found[0], "config.json")):
            return None
        return self._result("cache", Folder(found[0]), path=found[0], revision=found[1])

    def _hub(self, model: str, revision: str) -> dict[str, Any]:
        token = token_from(self.environ, self.params["token"], self.params["token_file"])
        endpoint = endpoint_from(self.environ, self.params["endpoint"])
        hub = Hub(endpoint, model, token, float(self.params["timeout"]))
        description = hub.resolve(revision)
        card = description.get("cardData") or {}
        return self._result(
            "hub",
            Repository(hub, description),
            revision=hub.commit,
            card={
                "author": description.get("author"),
                "license": card.get("license"),
                "gated": description.get("gated", False),
                "base_model": card.get("base_model"),
                "tags": description.get("tags") or [],
                "last_modified": description.get("lastModified"),
            },
        )

    def _result(
        self, kind: str, source: Any, path: str = "", revision: str = "", card: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        facts = read_checkpoint(source, str(self.params["model"]).strip(), self.params["tensors"])
        found = {"model": facts, "revision": revision, "source": kind, "path": path, "card": card or {}}
        return {"changed": False, **found}


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "revision": {"type": "str", "default": "main"},
            "source": {"type": "str", "choices": ["auto", "hub", "cache"], "default": "auto"},
            "endpoint": {"type": "str"},
            "cache": {"type": "path"},
            "token_file": {"type": "path", "no_log": False},
            "token": {"type": "str", "no_log": True},
            "tensors": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    facts = CheckpointFacts(module.params, dict(os.environ))
    try:
        result = facts.run()
    except (HubError, CheckpointError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        name = error.filename or module.params["model"]
        module.fail_json(msg=f"{name} cannot be read: {error.strerror or error}")
    for warning in facts.warnings:
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
