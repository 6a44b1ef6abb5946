# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From logs, responses and states to a root cause with its fix: rules as data, and a small engine."""

from __future__ import annotations

from .engine import diagnose, read_response
from .progress import progress

__all__ = ["diagnose", "progress", "read_response"]
