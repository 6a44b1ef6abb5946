# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a repository's own Python code has to be trusted.

``auto_map`` alone does not ask for it: vLLM takes its own classes for what it knows. It is needed where vLLM
does not know the architecture, where neither vLLM nor its transformers has the config class, or where the
tokenizer is a Python file of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .checkpoint import Checkpoint
from .findings import Finding
from .images import serves
from .knowledge import knowledge
from .parsers import repository_name
from .versions import holds


@dataclass(frozen=True, slots=True)
class RemoteCode:
    """``flag`` is whether ``--trust-remote-code`` is emitted, ``why`` its reason."""

    flag: bool
    why: str = ""
    findings: tuple[Finding, ...] = ()


@cache
def _rows() -> tuple[tuple[Mapping[str, re.Pattern[str]], Mapping[str, Any]], ...]:
    keys = ("model_type", "architecture", "name")
    return tuple(
        ({key: re.compile(row[key]) for key in keys if key in row}, row) for row in knowledge("remote_code")["rows"]
    )


def remote_code(checkpoint: Checkpoint, at: str, wish: bool | None) -> RemoteCode:
    """Whether the checkpoint's code is run at a version; the wish decides where there is one."""
    need = _need(checkpoint, at)
    if wish is None:
        return RemoteCode(True, need, (_runs_code(checkpoint, need),)) if need else RemoteCode(False)
    if wish:
        why = need or "asked for, though nothing seen asks for it"
        return RemoteCode(True, why, (_runs_code(checkpoint, why),))
    return RemoteCode(False, "", (_refused(checkpoint, need),) if need else ())


def _need(checkpoint: Checkpoint, at: str) -> str:
    """Why the code is needed; empty when it is not."""
    tokenizer = _own_tokenizer(checkpoint)
    if tokenizer:
        return tokenizer
    if not checkpoint.remote_code:
        return ""
    if not serves(checkpoint.architecture, at):
        return f"vLLM {at} has no class for {checkpoint.architecture or 'this model'}, the repository has"
    facts = {
        "model_type": checkpoint.model_type,
        "architecture": checkpoint.architecture,
        "name": repository_name(checkpoint.id),
    }
    for patterns, row in _rows():
        matches = all(pattern.search(facts[key]) for key, pattern in patterns.items())
        # A tokenizer_config.json that was read has already answered for the tokenizer.
        answered = row["part"] == "tokenizer" and checkpoint.tokenizer_config
        if matches and holds(row, at) and not answered:
            return f"the {row['part']} is Python code of the repository ({row['source']})"
    return ""


def _own_tokenizer(checkpoint: Checkpoint) -> str:
    config = checkpoint.tokenizer_config
    mapped = config.get("auto_map")
    if not isinstance(mapped, Mapping) or "AutoTokenizer" not in mapped:
        return ""
    if config.get("tokenizer_class") in knowledge("remote_code")["tokenizer_classes"]:
        return ""
    return f"tokenizer_config.json names a tokenizer of the repository ({config.get('tokenizer_class')})"


def _runs_code(checkpoint: Checkpoint, why: str) -> Finding:
    return Finding(
        level="warning",
        id="remote-code",
        what=f"--trust-remote-code is set for {checkpoint.id}: {why}.",
        why="Python files of the repository run with the rights of the server.",
        fix="Pin the revision and read the .py files; set vllm_trust_remote_code to false to refuse.",
        source="vLLM 0.33.0 docs/usage/security.md; knowledge/remote_code.yml",
    )


def _refused(checkpoint: Checkpoint, need: str) -> Finding:
    return Finding(
        level="error",
        id="remote-code-refused",
        what=f"{checkpoint.id} cannot be opened without --trust-remote-code: {need}.",
        why="vllm_trust_remote_code is false.",
        fix="Choose another checkpoint, a newer image, or trust this revision.",
        source="knowledge/remote_code.yml",
    )
