# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory of a rank beside weights and KV cache, and the budget vLLM makes of the node's memory.

vLLM profiles most of this at start; here it is estimated, on the large side, from the shapes of one batch.
The figures come from knowledge/overheads.yml and were held against the profile lines of real starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .attention import STATES, layer_caches
from .checkpoint import Checkpoint
from .knowledge import knowledge
from .wishes import Speculative

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes of one rank: what the driver and the libraries hold, the largest batch, graphs, and the draft."""

    context_bytes: int
    activation_bytes: int
    graph_bytes: int
    collective_bytes: int
    multimodal_bytes: int
    draft_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return (
            self.context_bytes
            + self.activation_bytes
            + self.graph_bytes
            + self.collective_bytes
            + self.multimodal_bytes
            + self.draft_bytes
        )


def _gib(name: str) -> int:
    return round(float(knowledge("overheads")[name]["value"]) * GIB)


def _number(text: Mapping[str, Any], *keys: str, default: int = 0) -> int:
    for key in keys:
        value = text.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            return int(max(value))
    return default


def activation_elements_per_token(checkpoint: Checkpoint, tensor: int = 1) -> int:
    """Elements alive at once for each token of a batch at the widest point of a layer.

    Hidden states and residuals, and the widest of attention, the dense MLP, the routed MLP, and the copies
    that the kernels of linear layers keep of their input.
    """
    text = checkpoint.text
    hidden = checkpoint.hidden_size
    heads = _number(text, "num_attention_heads", default=1)
    kv_heads = _number(text, "num_key_value_heads", default=heads)
    head_dim = _number(text, "global_head_dim", "head_dim", default=hidden // max(heads, 1))
    if text.get("kv_lora_rank"):
        head_dim = _number(text, "qk_nope_head_dim") + _number(text, "qk_rope_head_dim") or head_dim
    attention = 2 * (heads + kv_heads) * head_dim
    dense = 3 * _number(text, "intermediate_size")
    per_token = _number(text, "num_experts_per_tok")
    expert = _number(text, "moe_intermediate_size", default=_number(text, "intermediate_size"))
    shared = 3 * _number(text, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    shared = shared or 3 * expert * _number(text, "n_shared_experts", "num_shared_experts")
    routed = per_token * (3 * expert + hidden) + shared if checkpoint.sparsity == "moe" else 0
    linear = 0
    for cache in layer_caches(checkpoint):
        if cache.kind in STATES:
            linear = max(linear, 5 * sum(state.width for state in cache.states))
    return 6 * hidden + max(attention, dense, routed, linear) // tensor


def activation_bytes(
    checkpoint: Checkpoint,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    tensor: int = 1,
    context: int | None = None,
    last_stage: bool = True,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of the largest batch: its layer, the logits, the workspace of latent attention."""
    text = checkpoint.text
    total = max_num_batched_tokens * activation_elements_per_token(checkpoint, tensor) * checkpoint.dtype_bytes
    if last_stage:
        rows = min(max_num_seqs * (1 + speculative_tokens), max_num_batched_tokens)
        total += 2 * 4 * rows * checkpoint.vocab_size // tensor  # float32 logits and their copy
    if text.get("kv_lora_rank") and text.get("use_mla") is not False:
        most = int(knowledge("overheads")["latent_workspace_tokens"]["value"])
        tokens = min(8 * (context or most), most)
        heads = _number(text, "num_attention_heads", default=1) // tensor
        row = heads * (_number(text, "qk_nope_head_dim") + _number(text, "v_head_dim"))
        row += _number(text, "kv_lora_rank") + _number(text, "qk_rope_head_dim")
        total += tokens * row * checkpoint.dtype_bytes
    return total


def graph_bytes(max_num_seqs: int, speculative_tokens: int = 0, enforce_eager: bool = False) -> int:
    """Bytes of the CUDA graph pool."""
    if enforce_eager:
        return 0
    table = knowledge("overheads")
    captured = min(2 * max_num_seqs * (1 + speculative_tokens), int(table["graphs_largest_capture"]["value"]))
    return round(captured * float(table["graphs_per_token"]["value"]) * GIB)


def overhead(
    checkpoint: Checkpoint,
    pipeline: int = 1,
    tensor: int = 1,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 4,
    context: int | None = None,
    speculative: Speculative | None = None,
    enforce_eager: bool = False,
) -> tuple[Overhead, ...]:
    """What each node needs beside weights and KV cache, stage by stage.

    The first stage profiles the image encoder; the last computes logits and holds the draft.
    """
    ranks = []
    tokens = speculative.num_tokens if speculative else 0
    for stage in range(pipeline):
        last = stage == pipeline - 1
        draft = (speculative.draft_weight_bytes or 0) if speculative and last else 0
        rank = Overhead(
            context_bytes=_gib("context"),
            activation_bytes=activation_bytes(
                checkpoint, max_num_batched_tokens, max_num_seqs, tensor, context, last, tokens
            ),
            graph_bytes=graph_bytes(max_num_seqs, tokens, enforce_eager),
            collective_bytes=_gib("collectives") if pipeline * tensor > 1 else 0,
            multimodal_bytes=_gib("multimodal") if checkpoint.multimodal and stage == 0 else 0,
            draft_bytes=draft // tensor,
        )
        ranks += [rank] * tensor
    return tuple(ranks)


def load_transient_bytes(weight_bytes: int) -> int:
    """Bytes a node needs on top of its weights while they load."""
    row = knowledge("overheads")["load_transient"]
    share = weight_bytes * float(row["share_of_weights"])
    return round(min(max(share, float(row["least"]) * GIB), float(row["most"]) * GIB))


def requested_bytes(memory_total_bytes: int, gpu_memory_utilization: float) -> int:
    """What vLLM takes of a node: a share of all its memory, weights included (v1/worker/utils.py, 0.33)."""
    return math.ceil(memory_total_bytes * gpu_memory_utilization)


def available_kv_bytes(
    memory_total_bytes: int,
    gpu_memory_utilization: float,
    weight_bytes: int,
    overhead_bytes: int,
    kv_cache_memory_bytes: int | None = None,
) -> int:
    """Bytes left for the KV cache of a node, or the figure of --kv-cache-memory-bytes. May be negative."""
    if kv_cache_memory_bytes is not None:
        return kv_cache_memory_bytes
    return requested_bytes(memory_total_bytes, gpu_memory_utilization) - weight_bytes - overhead_bytes
