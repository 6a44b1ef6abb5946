# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts that age, kept as YAML beside this file (``<name>.yml``), each row with source and date."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HOME = Path(__file__).parent


@cache
def knowledge(name: str) -> Any:
    """The content of ``<name>.yml``, read once a process. Callers must not change it."""
    with (_HOME / f"{name}.yml").open(encoding="utf-8") as stream:
        return yaml.load(stream, Loader=_LOADER)
