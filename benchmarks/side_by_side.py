# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""This planner beside sparkrun 0.4.2, kvfit 0.3.0 and sparkfit 0.5.0, on the same configs.

    .venv/bin/python benchmarks/side_by_side.py [--configs DIR] [--python PYTHON] [--peers DIR]

The peers are installed from PyPI into an environment of their own (--peers, made with --python, 3.12 or
newer, when it is not there). DIR holds folders with a config.json each and may hold truth.json with published
sizes; without it the configs of the unit tests are used, and coverage, speed and time alone are compared.

What is compared: KV bytes per token at 16 bits, as growth from 64k to 128k tokens; bytes of the checkpoint
from its config alone; decode speed against the measurements in knowledge/speed.yml; time of an answer, which
is a whole plan here and a few products at the peers.
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

from plan_time import FIXTURES, ROOT, read_models

sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.knowledge import knowledge
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.plan import make_plan

PEERS = ("sparkrun==0.4.2", "kvfit==0.3.0", "sparkfit==0.5.0")
OURS = "dgx_spark.vllm"
WRONG = 0.05
UNKNOWN = frozenset({"architecture-unknown", "kv-cache-not-modelled", "kv-dtype-not-modelled"})
INDEX_ROW_BYTES = 132  # a sparse indexer's row: 128 values of 8 bits and a scale (vLLM, deepseek_v2.py)
# Published figures that speak of something else than what is asked, and what they speak of.
NOT_COMPARABLE = {
    ("openai/gpt-oss-120b", "weight_bytes"): "the repository holds its weights twice",
    ("deepseek-ai/DeepSeek-V4-Flash-0731", "weight_bytes"): "the files hold a drafter besides",
    ("Qwen/Qwen3.5-4B", "weight_bytes"): "this config was trimmed of its vision tower",
    ("meta-llama/Llama-3.2-90B-Vision-Instruct", "kv_bytes_per_token"): "counts layers of cross-attention",
}
Answers = dict[str, dict[str, Any]]


def environment(folder: Path, python: str) -> str:
    """The peers' interpreter; made and filled when it is not there."""
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(interpreter), "-m", "pip", "install", "-q", *PEERS], check=True)
    return str(interpreter)


def ask_peers(interpreter: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    """Every peer's answers and times."""
    text = json.dumps([{"name": model["id"], "config": model["config"]} for model in models])
    worker = Path(__file__).with_name("peers_worker.py")
    done = subprocess.run([interpreter, str(worker)], input=text, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ask_ourselves(models: list[dict[str, Any]]) -> dict[str, Any]:
    """The planner's answers in the same shape. An answer marked unknown counts as none."""
    answers: Answers = {}
    start = time.process_time()
    for model in models:
        plan = make_plan(model, ["spark1"], kv_cache_dtype="auto", placement="single")
        unknown = any(finding["id"] in UNKNOWN for finding in plan["findings"])
        answers[model["id"]] = {
            "kv_bytes_per_token": None if unknown else plan["memory"]["kv_bytes_per_token"],
            "weight_bytes": None if unknown else plan["memory"]["nodes"][0]["weight_bytes"],
            "tokens_per_second": plan["speed"]["decode_tokens_per_second"]["expected"],
        }
    return {"version": "", "seconds": time.process_time() - start, "answers": answers}


def index_bytes(config: dict[str, Any]) -> int:
    """Bytes a token takes in the caches of sparse indexers, which published latent sizes leave out."""
    if not config.get("index_head_dim") or config.get("compress_ratios"):
        return 0
    every, first = config.get("index_topk_freq") or 1, config.get("index_skip_topk_offset") or 0
    layers = range(config["num_hidden_layers"])
    return INDEX_ROW_BYTES * sum(max(layer - first + 1, 0) % every == 0 for layer in layers)


def truths(configs: Path | None) -> dict[str, dict[str, float]]:
    """Published KV bytes per token and checkpoint bytes by model, where truth.json has them."""
    path = configs / "truth.json" if configs else None
    found: dict[str, dict[str, float]] = {}
    if path is None or not path.is_file():
        return found
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        known: dict[str, float] = {}
        per_token = (row.get("kv") or {}).get("bytes_per_token_2byte_full_layers")
        per_token = (row.get("kv_published") or {}).get("bytes_per_token_2byte", per_token)
        config_path = path.parent / str(row.get("dir")) / "config.json"
        if per_token is not None and config_path.is_file():
            known["kv_bytes_per_token"] = per_token + index_bytes(json.loads(config_path.read_text("utf-8")))
        if row.get("checkpoint_bytes"):
            known["weight_bytes"] = row["checkpoint_bytes"][0]["bytes"]
        found[row["model"]] = {key: value for key, value in known.items() if (row["model"], key) not in NOT_COMPARABLE}
    return found


def compare(answers: Answers, truth: dict[str, dict[str, float]], key: str) -> tuple[int, int, int, float, float]:
    """Answers given, answers compared, wrong by more than 5 percent, median and worst error."""
    given = sum(answer.get(key) is not None for answer in answers.values())
    errors = []
    for name, known in truth.items():
        figure = answers.get(name, {}).get(key)
        if key in known and figure is not None:
            base = known[key]
            errors.append(abs(figure / base - 1) if base else float(figure != 0))
    if not errors:
        return given, 0, 0, 0.0, 0.0
    return given, len(errors), sum(e > WRONG for e in errors), statistics.median(errors), max(errors)


def speed_errors(answers: Answers) -> list[float]:
    """Errors against the measurements of one node, short prompts."""
    rows = [row for row in knowledge("speed")["measurements"] if not {"tensor", "pipeline"} & set(row)]
    found = []
    for row in rows:
        figure = answers.get(f"org/{row['config']}", {}).get("tokens_per_second")
        if figure and row.get("depth", 0) < 2048:
            found.append(abs(figure / row["tokens_per_second"] - 1))
    return found


def main() -> None:
    """Ask everybody, print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--python", default="python3.12")
    parser.add_argument("--peers", type=Path, default=ROOT / ".cache" / "peers")
    arguments = parser.parse_args()
    models = read_models(arguments.configs)
    fixtures = read_models(None) if arguments.configs else models
    interpreter = environment(arguments.peers, arguments.python)
    ask_ourselves(models[:1])
    results = {OURS: ask_ourselves(models), **ask_peers(interpreter, models)}
    speeds = {OURS: ask_ourselves(fixtures), **ask_peers(interpreter, fixtures)}
    truth = truths(arguments.configs)
    if not truth:
        print(f"{FIXTURES.name} has no published sizes: coverage, speed and time alone are compared.\n")
    print(f"{len(models)} configs\n")
    print(
        "| planner | KV answers | compared | wrong >5 % | worst | weights compared | wrong >5 % | median |",
        end="",
    )
    print(" speed rows | median error | within 25 % | ms an answer |")
    print("|---" * 12 + "|")
    for name, result in results.items():
        kv = compare(result["answers"], truth, "kv_bytes_per_token")
        weights = compare(result["answers"], truth, "weight_bytes")
        speed = speed_errors(speeds[name]["answers"])
        cells = [f"{name} {result['version']}".strip(), f"{kv[0]}", f"{kv[1]}", f"{kv[2]}", f"{kv[4]:.0%}"]
        cells += [f"{weights[1]}", f"{weights[2]}", f"{weights[3]:.1%}"] if weights[1] else ["-", "-", "-"]
        if speed:
            near = sum(error <= 0.25 for error in speed)
            cells += [f"{len(speed)}", f"{statistics.median(speed):.0%}", f"{near}"]
        else:
            cells += ["-", "-", "-"]
        cells.append(f"{result['seconds'] / len(models) * 1e3:.2f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
