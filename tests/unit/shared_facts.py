"""Where the extra facts for tests lie, if they are here at all.

Import as ``from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts``.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_DEFAULT = Path(__file__).resolve().parents[2].parent / "shared"


def shared_dir() -> Path:
    """The folder of facts; skips the test where it is absent, fails it there under CI."""
    path = Path(os.environ.get("DGX_SPARK_SHARED", _DEFAULT))
    if not path.is_dir():
        message = f"no facts at {path} (set DGX_SPARK_SHARED)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


def has_shared() -> bool:
    """Whether the folder of facts is here; for collecting parameters without skipping the module."""
    return Path(os.environ.get("DGX_SPARK_SHARED", _DEFAULT)).is_dir()


@cache
def load(relative: str) -> Any:
    """One JSON file of the facts."""
    return json.loads((shared_dir() / relative).read_text(encoding="utf-8"))


@cache
def model_names() -> tuple[str, ...]:
    """Folders under models/ that hold a config.json, relative to it; empty where the facts are absent."""
    if not has_shared():
        return ()
    root = shared_dir() / "models"
    return tuple(sorted(str(path.parent.relative_to(root)) for path in root.glob("**/config.json")))


def model_input(name: str) -> dict[str, Any]:
    """The planner's ``model`` input for one of ``model_names()``."""
    folder = shared_dir() / "models" / name
    model: dict[str, Any] = {
        "id": folder.name.replace("__", "/", 1),
        "config": json.loads((folder / "config.json").read_text(encoding="utf-8")),
        "files": sorted(path.name for path in folder.iterdir() if path.name != "SOURCE"),
    }
    for key, file in (
        ("quant_config", "hf_quant_config.json"),
        ("tokenizer_config", "tokenizer_config.json"),
    ):
        if (folder / file).exists():
            model[key] = json.loads((folder / file).read_text(encoding="utf-8"))
    if (folder / "chat_template.jinja").exists():
        model["chat_template"] = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    return model
