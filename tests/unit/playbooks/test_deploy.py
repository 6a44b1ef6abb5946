# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A wrong setting stops the deploy with one clear message, before any node is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Nobody answers there: a deploy that got so far would be unreachable instead of refused.
NOWHERE = "sparks:\n  hosts:\n    spark-1:\n    spark-2:\n  vars: {ansible_host: 127.0.0.1, ansible_port: 9}\n"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("vllm_placement=tripod", "value of vllm_placement must be one of: single, pipeline, tensor, got: tripod"),
        ("vllm_model=", "vllm_model: expected a repository (owner/name) or a directory, got nothing"),
        (
            '{"vllm_nodes": ["spark-1", "spark-7"]}',
            "vllm_nodes: spark-7 not in the inventory (it has spark-1, spark-2)",
        ),
        ("vllm_contxt=4096", "vllm_contxt: there is no such variable; did you mean vllm_context?"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_touched(tmp_path: Path, variable: str, message: str) -> None:
    (tmp_path / "nowhere.yml").write_text(NOWHERE, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "deploy.yml", "-i", "spark-pair"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [*command, "-i", str(tmp_path / "nowhere.yml"), "-e", variable],
        cwd=ROOT,
        env=environment | {"ANSIBLE_FORCE_COLOR": "0", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert message in " ".join((done.stdout + done.stderr).split())
    assert "unreachable=0" in done.stdout
    assert "changed=0" in done.stdout
