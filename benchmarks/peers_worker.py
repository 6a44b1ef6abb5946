# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Asks sparkrun, kvfit and sparkfit about configs. Runs in an environment of their own; see side_by_side.py.

Input on stdin: JSON list of {name, config}. Output: {peer: {version, import_seconds, seconds, answers}}, each
answer {kv_bytes_per_token, weight_bytes, tokens_per_second} (null where the peer gives none) or {error}.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

NEAR, FAR = 65536, 131072  # growth between the two is what a token takes: windows and states are full by then


def sparkfit() -> Callable[[dict[str, Any]], dict[str, Any]]:
    import sparkfit as peer

    def ask(config: dict[str, Any]) -> dict[str, Any]:
        spec = peer.parse_hf_config(config)
        quant = spec.get("detected_quant") or "bf16"
        growth = peer.kv_total_bytes(spec, FAR, 1) - peer.kv_total_bytes(spec, NEAR, 1)
        return {
            "kv_bytes_per_token": growth / (FAR - NEAR),
            "weight_bytes": peer.weight_bytes(spec["total_b"], quant),
            "tokens_per_second": peer.decode_tok_s(spec, quant, 1024)["per_stream"],
        }

    return ask


def sparkrun() -> Callable[[dict[str, Any]], dict[str, Any]]:
    from sparkrun.models.kv import arch_fields
    from sparkrun.models.vram import estimate_vram, extract_model_info

    def ask(config: dict[str, Any]) -> dict[str, Any]:
        info = extract_model_info(config)
        names = {field.name for field in arch_fields()}
        common = {
            "kv_dtype": "bfloat16",
            "model_dtype": info.get("quant_dtype") or info.get("model_dtype"),
            "num_layers": info.get("num_layers"),
            "num_kv_heads": info.get("num_kv_heads"),
            "head_dim": info.get("head_dim"),
            "model_type": info.get("model_type"),
            "arch": {name: info[name] for name in names if name in info},
        }
        near, far = (estimate_vram(max_model_len=length, **common).kv_cache_total_gb for length in (NEAR, FAR))
        growth = None if near is None or far is None else (far - near) * 2**30 / (FAR - NEAR)
        return {"kv_bytes_per_token": growth, "weight_bytes": None, "tokens_per_second": None}

    return ask


def kvfit() -> Callable[[dict[str, Any]], dict[str, Any]]:
    from kvfit.architectures import estimate_cache

    def ask(config: dict[str, Any]) -> dict[str, Any]:
        near, far = (estimate_cache(config, context_tokens=length).total_bytes for length in (NEAR, FAR))
        growth = (far - near) / (FAR - NEAR)
        return {"kv_bytes_per_token": growth, "weight_bytes": None, "tokens_per_second": None}

    return ask


def main() -> None:
    """Ask each peer about every config."""
    models = json.load(sys.stdin)
    results = {}
    for make in (sparkrun, kvfit, sparkfit):
        name = make.__name__
        start = time.process_time()
        ask = make()
        imported = time.process_time() - start
        answers: dict[str, Any] = {}
        start = time.process_time()
        for model in models:
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    answers[model["name"]] = ask(model["config"])
            except (Exception, SystemExit) as error:  # a peer may leave in any way it likes
                answers[model["name"]] = {"error": f"{type(error).__name__}: {error}"[:200]}
        seconds = time.process_time() - start
        results[name] = {
            "version": version(name),
            "import_seconds": imported,
            "seconds": seconds,
            "answers": answers,
        }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
