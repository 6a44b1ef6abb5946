# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask vLLM's own planning code how it lays out the caches of models of full size, without starting it.

Run by the Python of a vLLM environment. Each line of standard input is ``{"name", "config", "context",
"batch_tokens", "prefix_caching"}``; each line of standard output is the layout or ``{"name", "error"}``. The
layers are made on PyTorch's meta device, so that a model of any size takes seconds and no memory.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    VLLM_ALLOW_LONG_MAX_MODEL_LEN="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
)

import torch
from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.core import kv_cache_utils


def lay_out(case: dict, folder: str, first: bool) -> dict:
    """The layout of one model: block, bytes a block, blocks of a request, sizes of the groups."""
    (Path(folder) / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
    config = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        enforce_eager=True,
        max_model_len=case["context"],
        max_num_batched_tokens=case["batch_tokens"],
        max_num_seqs=4,
        enable_prefix_caching=case["prefix_caching"],
        kv_cache_memory_bytes=1 << 30,
    ).create_engine_config()
    with set_current_vllm_config(config):
        if first:
            init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
            initialize_model_parallel(1, 1)
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
            model = initialize_model(vllm_config=config)
        current_platform.update_block_size_for_backend(config)
        specs = {}
        for name, layer in get_layers_from_vllm_config(config, AttentionLayerBase).items():
            spec = layer.get_kv_cache_spec(config)
            if spec is not None and not getattr(layer, "kv_sharing_target_layer_name", None):
                specs[name] = spec
        del model
        config.cache_config.kv_cache_layout = "LBHNC"  # the only one the CPU's kernels read
        groups = kv_cache_utils.get_kv_cache_groups(config, specs)
        blocks = [
            -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
            for group in groups
        ]
        sizes = [
            sum(
                getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(name, group.kv_cache_spec).page_size_bytes
                for name in group.layer_names
            )
            for group in groups
        ]
        return {
            "name": case["name"],
            "block": config.cache_config.block_size,
            "bytes_per_block": max(sizes),
            "blocks": sum(blocks),
            "groups": sorted(len(group.layer_names) for group in groups),
            "state_dtype": config.cache_config.mamba_ssm_cache_dtype,
            "tokens_in_flight": config.max_in_flight_tokens,
        }


def main() -> None:
    """One answer a line, in the order of the questions."""
    # Groups of experts are made with the first model, so that one must have experts; the caller sorts.
    first = True
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            try:
                answer = lay_out(case, folder, first)
                first = False
            except BaseException as problem:
                answer = {"name": case["name"], "error": repr(problem)[:400]}
        print("LAYOUT " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
