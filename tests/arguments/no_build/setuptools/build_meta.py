"""Tells pip the name and version of a source distribution without building it."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile
from typing import Any


def prepare_metadata_for_build_wheel(directory: str, settings: Any = None) -> str:
    home = Path(directory, "vllm.dist-info")
    home.mkdir()
    copyfile("PKG-INFO", home / "METADATA")
    return home.name


def build_wheel(*unused: Any) -> str:
    raise NotImplementedError("this backend only names a source distribution")
