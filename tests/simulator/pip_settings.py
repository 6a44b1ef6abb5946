"""This machine's pip configuration, carried into a container: mirrors, folders of wheels, certificates."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PipSettings:
    """``PIP_*`` variables, and the local files and folders they name."""

    environment: dict[str, str]
    paths: tuple[str, ...]

    def volumes(self) -> list[str]:
        return [f"{path}:{path}:ro" for path in self.paths]


def from_config_list(text: str) -> PipSettings:
    """Read what ``pip config list`` prints: ``section.name='value'``, later sections winning."""
    environment: dict[str, str] = {}
    for line in text.splitlines():
        name, _equals, quoted = line.partition("=")
        section, _dot, option = name.rpartition(".")
        if section.strip(":.") not in ("global", "install", "env") or not option:
            continue
        value = str(ast.literal_eval(quoted))
        environment[f"PIP_{option.upper().replace('-', '_')}"] = " ".join(value.split())
    words = {word for value in environment.values() for word in value.split()}
    paths = sorted(path for path in map(_local_path, words) if path and Path(path).exists())
    return PipSettings(environment, _without_nested(paths))


def _local_path(word: str) -> str:
    """The file or folder that a value needs here, or nothing for what is elsewhere."""
    path = word.removeprefix("file://").rstrip("/")
    if not path.startswith("/"):
        return ""
    # The pages of a local index (.../simple/NAME/index.html) lead to files beside it.
    return path.removesuffix("/simple")


def _without_nested(paths: list[str]) -> tuple[str, ...]:
    """A folder brings what is below it."""
    return tuple(path for path in paths if not any(path.startswith(f"{other}/") for other in paths))
