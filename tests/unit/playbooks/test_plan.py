# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan playbook as a user runs it: no inventory, no node, no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODELS = json.loads((ROOT / "tests/unit/fixtures/speed_models.json").read_text(encoding="utf-8"))


def run(folder: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """``ansible-playbook dgx_spark.vllm.plan`` from an empty directory, with nowhere to go."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "dgx_spark.vllm.plan"]
    for variable in variables:
        command += ["-e", variable]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "HF_"))},
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        "ANSIBLE_FORCE_COLOR": "False",
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(folder / "hf"),
        "HOME": str(folder),
    }
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MODELS["Qwen3.6-35B-A3B-FP8"]["config"]), encoding="utf-8")
    return path


def test_page(config: Path) -> None:
    done = run(config.parent, f"vllm_model={config}", "plan_nodes=2", "vllm_placement=pipeline")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    verdict = next(line for line in lines if line.startswith("FITS"))
    assert verdict.startswith("FITS in a pipeline of 2 nodes (spark1, spark2)")
    assert any(line.startswith("  vllm serve ") for line in lines), "a page, not JSON"
    assert "changed=0" in done.stdout


def test_json_in_a_file(config: Path) -> None:
    variables = (
        f"vllm_model={config.parent}",
        "plan_format=json",
        "plan_file=plan.json",
        "vllm_context=8192",
    )
    done = run(config.parent, *variables)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads((config.parent / "plan.json").read_text(encoding="utf-8"))
    assert plan["fits"]
    assert plan["memory"]["context"] == 8192
