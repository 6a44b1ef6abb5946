# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the user should know: the one shape in which plan, preflight, diagnosis and provenance speak."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know.

    ``level`` is ``error`` (stops the play), ``warning`` or ``note``; ``id`` is stable and kebab-case;
    ``what`` is the fact, ``why`` its reason, ``fix`` the variable or command that changes it,
    ``source`` where the rule comes from.
    """

    level: Level
    id: str
    what: str
    why: str
    fix: str
    source: str

    def as_dict(self) -> dict[str, Any]:
        """The finding as a plain dict of strings."""
        return asdict(self)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; the order within a level is kept."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))
