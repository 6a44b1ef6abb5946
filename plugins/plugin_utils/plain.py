# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible hands filters tagged strings and lazy containers; everything behind a filter wants plain ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """``value`` with dict, list, str, int, float, bool and None alone, all the way down.

    What is none of these is left as it is: an iterable of lines may be a stream.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, tuple) else plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return value
