# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""vLLM versions: reading, comparing, and the ranges that knowledge rows carry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

Version = tuple[int, ...]

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.\-+]?(?:rc|post|dev|g|nv)[0-9A-Za-z.]*)?")


@cache
def version(text: str) -> Version:
    """``0.25.1`` or ``v0.25`` as numbers that compare; ValueError when it is no version."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no vLLM version such as 0.25.1")
    return tuple(int(part or 0) for part in match.groups())


def holds(row: Mapping[str, Any], at: str) -> bool:
    """Whether a row is in force at a version: from ``since`` on, up to but without ``removed``."""
    since, removed = row.get("since"), row.get("removed")
    return (since is None or version(since) <= version(at)) and (removed is None or version(at) < version(removed))
