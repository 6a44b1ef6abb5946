# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How long planning takes: one plan once loaded, and 150 models in one process with the import.

    .venv/bin/python benchmarks/plan_time.py [--configs DIR]

DIR holds folders with a config.json each; without it the configs of the unit tests are planned.
Times are of the processor, so that a busy machine does not spoil them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "unit" / "fixtures" / "speed_models.json"
MODELS = 150


def read_models(configs: Path | None) -> list[dict[str, Any]]:
    """The planner's ``model`` input for every config there is."""
    if configs is None:
        fixtures = json.loads(FIXTURES.read_text(encoding="utf-8"))
        return [{"id": f"org/{name}", **parts} for name, parts in fixtures.items()]
    models = []
    for path in sorted(configs.glob("**/config.json")):
        model: dict[str, Any] = {"id": path.parent.name.replace("__", "/", 1)}
        model["config"] = json.loads(path.read_text(encoding="utf-8"))
        quant = path.with_name("hf_quant_config.json")
        if quant.is_file():
            model["quant_config"] = json.loads(quant.read_text(encoding="utf-8"))
        models.append(model)
    return models


def measure(configs: Path | None) -> dict[str, float]:
    """Seconds: import and first use, the first run over 150 models, and each plan of a second run."""
    models = read_models(configs)
    models = (models * (MODELS // len(models) + 1))[:MODELS]
    sys.path.insert(0, str(ROOT / ".collections"))
    start = time.process_time()
    from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.plan import make_plan

    imported = time.process_time()
    for model in models:
        make_plan(model, ["spark1", "spark2"])
    done = time.process_time()
    each = []
    for model in models:
        before = time.process_time()
        make_plan(model, ["spark1", "spark2"])
        each.append(time.process_time() - before)
    return {
        "import": imported - start,
        "all": done - start,
        "median": statistics.median(each),
        "mean": statistics.mean(each),
        "worst": max(each),
    }


def main() -> None:
    """Measure in a fresh process, five times, and print the best of each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure(arguments.configs)))
        return
    command = [sys.executable, __file__, "--once"]
    command += ["--configs", str(arguments.configs)] if arguments.configs else []
    runs = [json.loads(subprocess.check_output(command)) for _run in range(5)]
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    print("| what | measured |")
    print("|---|---|")
    print(f"| import | {best['import'] * 1e3:.0f} ms |")
    print(f"| {MODELS} models in one process, import included | {best['all']:.2f} s |")
    print(f"| one plan once loaded, median | {best['median'] * 1e3:.2f} ms |")
    print(f"| one plan once loaded, mean | {best['mean'] * 1e3:.2f} ms |")
    print(f"| one plan once loaded, worst | {best['worst'] * 1e3:.1f} ms |")


if __name__ == "__main__":
    main()
