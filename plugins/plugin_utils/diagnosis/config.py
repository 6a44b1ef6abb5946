# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is known about how the server was started, as facts: model, version, image, flags, variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from .conditions import flatten

_ARGS_LINE = re.compile(r"non-default args: (?P<args>\{.{2,20000})")
_ARG = re.compile(r"'(?P<name>\w{1,60})': (?:'(?P<text>[^']{0,300})'|(?P<bare>[\w.+-]{1,40}|\[[^\]]{0,300}\]))")
_BANNER = re.compile(r"(?:█ {1,8}version |engine \(v|API server version )(?P<version>\d+\.\d+[\w.+]{0,40})")
_ENV = re.compile(r"[A-Z][A-Z0-9_]{2,60}")


def _words(flags: Any) -> list[str]:
    if isinstance(flags, Mapping):
        flags = [
            part
            for name, value in flags.items()
            for part in (
                [f"--{name}"] if value is True else [f"--{name}", str(value)] if value not in (None, False) else []
            )
        ]
    if isinstance(flags, list | tuple):
        return [str(word) for word in flags]
    try:
        return shlex.split(str(flags))
    except ValueError:
        return str(flags).split()


def flag_facts(flags: Any) -> dict[str, Any]:
    """``--max-model-len 4096`` as ``flag.max_model_len: 4096``; ``NAME=value`` as ``env.NAME``."""
    facts: dict[str, Any] = {}
    words = [word.rstrip(";,") for word in _words(flags)]
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, joined, value = word[2:].partition("=")
            following = words[place + 1] if place + 1 < len(words) else "--"
            if not joined:
                value = "" if following.startswith("--") else following
            facts[f"flag.{name.replace('-', '_').lower()}"] = value or True
        elif "=" in word and _ENV.fullmatch(word.partition("=")[0]):
            name, _equals, value = word.partition("=")
            facts[f"env.{name}"] = value
        elif re.fullmatch(r"(?:TP|PP)=\d+", word):
            facts[f"flag.{'tensor' if word[0] == 'T' else 'pipeline'}_parallel_size"] = word[3:]
    return facts


def log_facts(text: str) -> dict[str, Any]:
    """Version and arguments as vLLM itself prints them at its start; ``text`` is the head of a log."""
    facts: dict[str, Any] = {}
    if match := _BANNER.search(text):
        facts["vllm"] = match["version"]
    for line in _ARGS_LINE.finditer(text):
        for arg in _ARG.finditer(line["args"]):
            facts[f"flag.{arg['name']}"] = arg["text"] if arg["text"] is not None else arg["bare"]
    return facts


def config_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """The ``config`` part of the evidence, whatever of it is there."""
    facts: dict[str, Any] = {}
    for name, value in config.items():
        if name in ("flags", "args", "serve_args", "extra_args"):
            facts.update(flag_facts(value))
            facts["flags"] = " ".join(_words(value)) if not isinstance(value, str) else value
        elif name in ("env", "environment") and isinstance(value, Mapping):
            facts.update({f"env.{key}": item for key, item in value.items() if not isinstance(item, Mapping)})
        elif name in ("vllm", "vllm_version", "version"):
            facts["vllm"] = str(value)
        elif isinstance(value, Mapping | list | tuple):
            facts.update(flatten(value, str(name)))
        else:
            facts[str(name)] = value
    return facts
