# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A diagnosis as a page: the verdict, then each finding with its node, its evidence and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..render import MARKS, hanging

SHOWN_LINES = 3
SHOWN_CHARACTERS = 240


def page(diagnosis: Mapping[str, Any], width: int = 100) -> str:
    """The text, ending with a line break. The first finding is the root cause."""
    lines = [f"Diagnosis: {diagnosis['verdict']}"]
    for finding in diagnosis["findings"]:
        node = f"{finding['node']}: " if finding.get("node") else ""
        lines += hanging(f"  {MARKS[finding['level']]} ", f"{node}{finding['what']} [{finding['id']}]", width)
        lines += [f"      | {line.strip()[:SHOWN_CHARACTERS]}" for line in finding["evidence"][:SHOWN_LINES]]
        if finding["why"]:
            lines += hanging("      ", finding["why"], width)
        if finding["fix"]:
            lines += hanging("    → ", finding["fix"], width)
    return "\n".join(lines) + "\n"
