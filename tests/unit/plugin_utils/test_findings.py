# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Order and shape of findings."""

from __future__ import annotations

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.findings import Finding, by_severity


def test_errors_come_first_and_order_within_a_level_is_kept():
    findings = [
        Finding(level, f"f{n}", "what", "why", "fix", "source")
        for n, level in enumerate(["note", "error", "warning", "error"])
    ]
    assert [finding.id for finding in by_severity(findings)] == ["f1", "f3", "f2", "f0"]
    assert set(findings[0].as_dict()) == {"level", "id", "what", "why", "fix", "source"}
