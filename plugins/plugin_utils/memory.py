# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory of a deployment on its nodes: the KV cache by vLLM's own arithmetic, and what lies beside it.

This module joins a checkpoint and the settings of a start; the arithmetic of pages and blocks is in
kv_cache.py and that of overhead in overhead.py. All sizes are bytes; per-node figures go stage by stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .attention import STATES, LayerCache, attention_findings, growing_caches, layer_caches
from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .knowledge import knowledge
from .kv_cache import (
    KvDtype,
    KvLayout,
    Rules,
    hybrid_block,
    kv_dtype,
    make_groups,
    make_pages,
    runs_on_v2,
    stage_positions,
    state_bytes,
    token_bytes,
)
from .overhead import (
    Overhead,
    available_kv_bytes,
    load_transient_bytes,
    overhead,
    requested_bytes,
)
from .versions import holds
from .weights import split_layers
from .wishes import Speculative

__all__ = [
    "KvLayout",
    "Overhead",
    "available_kv_bytes",
    "checkpoint_kv_dtype",
    "default_prefix_caching",
    "kv_bytes_per_token",
    "kv_layout",
    "load_transient_bytes",
    "memory_findings",
    "overhead",
    "requested_bytes",
    "stored_kv_dtype",
]

DEFAULT_VLLM_VERSION = "0.33.0"
DEFAULT_MAX_NUM_BATCHED_TOKENS = 8192


def checkpoint_kv_dtype(checkpoint: Checkpoint) -> str:
    """What vLLM makes of ``auto``: the scheme the checkpoint ships scales for, else ``auto``."""
    scheme = checkpoint.quantization.kv_cache
    return scheme if scheme and scheme in knowledge("kv_cache")["dtypes"]["names"] else "auto"


def kv_bytes_per_token(checkpoint: Checkpoint, kv_cache_dtype: str = "auto", tensor: int = 1) -> int:
    """Bytes one more token of a request takes, all nodes together, in the layers that keep growing.

    ``auto`` is the dtype the model runs in. Latent caches and their index are copied on every tensor rank,
    and heads that do not divide are too: with ``tensor`` above 1 the figure is that of all ranks.
    """
    everything = layer_caches(checkpoint)
    stored = kv_cache_dtype
    if kv_cache_dtype != "auto":
        stored = stored_kv_dtype(checkpoint, kv_cache_dtype, everything)
    dtype = kv_dtype(stored, checkpoint.dtype_bytes)
    total, blocks = 0, 0
    for cache in growing_caches(checkpoint, everything):
        row = token_bytes(cache, dtype, tensor)
        if cache.block is None:
            total += row
            continue
        page = cache.block // cache.compress_ratio * row
        alignment = dtype.alignment or 512
        blocks += -(-page // alignment) * alignment
    compressed_block = 256  # tokens a block of DeepSeek V4's compressed rows
    return tensor * (total + blocks // compressed_block)


def _draft_row(checkpoint: Checkpoint, method: str) -> Mapping[str, Any]:
    types = (str(checkpoint.text.get("model_type") or ""), checkpoint.model_type)
    row: Mapping[str, Any]
    for row in knowledge("kv_cache")["drafts"]:
        named = row.get("model_types")
        if method in row["methods"] and (named is None or any(name in named for name in types)):
            return row
    return {"layers": 1, "sure": "judged", "source": "one layer like the target's"}


def _drafts(checkpoint: Checkpoint, caches: Sequence[LayerCache], speculative: Speculative | None) -> list[LayerCache]:
    """The caches of the draft: the model's own multi-token-prediction layers, or a published draft's."""
    if speculative is None:
        return []
    method = speculative.method
    row: Mapping[str, Any] = {"layers": 1}
    if method == "mtp" or method.endswith("_mtp"):
        own = [cache for cache in caches if cache.draft]
        if own:
            return own
    else:
        row = _draft_row(checkpoint, method)
    kinds = ("sliding",) if row.get("like") == "sliding" else ("full", "mla")
    like = next((cache for cache in caches if cache.kind in kinds), None)
    if like is None:
        return []
    like = replace(like, kind="mla" if like.kind == "mla" else "full", window=None, draft=True)
    if row.get("kv_heads"):
        dim = int(row["head_dim"])
        like = LayerCache(0, "full", int(row["kv_heads"]), dim, dim, draft=True)
    return [replace(like, layer=checkpoint.layers + index) for index in range(int(row["layers"]))]


def _state_mode(checkpoint: Checkpoint, prefix_caching: bool, version: str) -> str:
    if not prefix_caching:
        return "none"
    table = knowledge("kv_cache")
    names = table["state_mode_all_model_types"]["names"]
    text_type = str(checkpoint.text.get("model_type") or checkpoint.model_type)
    every = text_type in names or checkpoint.model_type in names
    return "all" if every and holds(table["rules"]["state_mode_all"], version) else "align"


def default_prefix_caching(checkpoint: Checkpoint, vllm_version: str = DEFAULT_VLLM_VERSION) -> bool:
    """Whether vLLM turns prefix caching on by itself: hybrids only since 0.28."""
    hybrid = any(cache.kind in STATES for cache in layer_caches(checkpoint))
    return not hybrid or holds(knowledge("kv_cache")["rules"]["hybrid_prefix_caching"], vllm_version)


def _batches_in_flight(pipeline: int, asynchronous: bool, runner_v2: bool, version: str) -> int:
    """Batches scheduled but not settled (config/vllm.py, max_concurrent_batches)."""
    if not holds(knowledge("kv_cache")["rules"]["tokens_in_flight"], version):
        return 1
    if asynchronous and runner_v2:
        return pipeline + 1
    return 2 if asynchronous and pipeline == 1 else pipeline


def _retained(checkpoint: Checkpoint, speculative: Speculative | None, version: str) -> int:
    if speculative is None or speculative.method != "mtp":
        return 0
    if not holds(knowledge("kv_cache")["rules"]["retained_for_drafts"], version):
        return 0
    modules = min(checkpoint.mtp_layers, speculative.num_tokens)
    return speculative.num_tokens - 1 if modules > 1 else 0


def kv_layout(
    checkpoint: Checkpoint,
    pipeline: int = 1,
    tensor: int = 1,
    partition: Sequence[int] | None = None,
    kv_cache_dtype: str = "auto",
    max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS,
    prefix_caching: bool | None = None,
    speculative: Speculative | None = None,
    vllm_version: str = DEFAULT_VLLM_VERSION,
    *,
    context: int | None = None,
    block_size: int | None = None,
    kernel_block: int = 16,
    mamba_ssm_cache_dtype: str | None = None,
    async_scheduling: bool | None = None,
    runner_v2: bool | None = None,
    hybrid_cache_manager: bool = True,
    state_checkpoints: bool = True,
) -> KvLayout:
    """How vLLM lays the KV cache of this checkpoint on ``pipeline * tensor`` nodes.

    ``context`` only matters to models of states alone, whose block is the context. ``block_size`` is --block-
    size, ``kernel_block`` the attention kernels' smallest block (16 on CUDA). ``None`` stands for vLLM's
    default.
    """
    if tensor < 1:
        raise InputError("tensor_parallel_size", f"expected at least 1, got {tensor}")
    everything = layer_caches(checkpoint)
    caches = [cache for cache in everything if not cache.draft] + _drafts(checkpoint, everything, speculative)
    hybrid = any(cache.kind in STATES for cache in caches)
    if prefix_caching is None:
        prefix_caching = default_prefix_caching(checkpoint, vllm_version)
    dtype = kv_dtype(stored_kv_dtype(checkpoint, kv_cache_dtype, everything), checkpoint.dtype_bytes)
    method = speculative.method if speculative else None
    if runner_v2 is None:
        runner_v2 = runs_on_v2(checkpoint.architecture, checkpoint.sparsity == "moe", hybrid, method, vllm_version)
    if async_scheduling is None:
        async_scheduling = method not in ("ngram", "suffix", "medusa", "mlp_speculator", "custom_class")
    mode = _state_mode(checkpoint, prefix_caching, vllm_version) if hybrid else "none"
    rules = Rules(
        version=vllm_version,
        in_flight_tokens=max_num_batched_tokens
        * _batches_in_flight(pipeline, async_scheduling, runner_v2, vllm_version),
        speculative_tokens=speculative.num_tokens if speculative and hybrid else 0,
        extra_retained_tokens=_retained(checkpoint, speculative, vllm_version),
        state_mode=mode,
    )
    if mode == "align" and state_checkpoints:
        rules = replace(rules, state_checkpoint_blocks=_checkpoint_blocks(caches, vllm_version))

    block, padded, state_block = _blocks(
        checkpoint, caches, dtype, tensor, rules, block_size, kernel_block, mamba_ssm_cache_dtype, context
    )
    pages = make_pages(
        caches,
        dtype,
        tensor,
        block,
        lambda cache: _state_page(cache, checkpoint, tensor, rules, mamba_ssm_cache_dtype),
        padded,
        state_block,
        as_full=not hybrid_cache_manager,
        window_block=kernel_block if block_size is None and rules.on("window_block_smallest") else None,
    )
    packed = any(cache.block is not None for cache in caches)
    bounds = split_layers(checkpoint.layers, pipeline, partition)
    return KvLayout(
        groups=tuple(make_groups(pages, rules, block_outermost=packed)),
        stage_of=stage_positions(caches, bounds),
        stages=pipeline,
        tensor=tensor,
        block_tokens=block,
        rules=rules,
    )


def stored_kv_dtype(checkpoint: Checkpoint, name: str, caches: Sequence[LayerCache] | None = None) -> str:
    """The format vLLM stores the cache in when asked for ``name``.

    ``auto`` is the scheme the checkpoint ships scales for. Sparse latent attention stores packed rows for
    fp8, and DeepSeek V4 always.
    """
    forced = knowledge("kv_cache")["forced_dtypes"]
    everything = layer_caches(checkpoint) if caches is None else caches
    compressed = any(cache.kind == "mla" and cache.block is not None for cache in everything)
    resolved = checkpoint_kv_dtype(checkpoint) if name == "auto" else name
    sparse = compressed or any(cache.kind == "indexer" for cache in everything)
    if (sparse and resolved in forced["for"]) or (compressed and resolved == "auto"):
        return str(forced["packed"])
    return resolved


def _checkpoint_blocks(caches: Sequence[LayerCache], version: str) -> int:
    since = knowledge("kv_cache")["state_checkpoints"]["since"]
    kinds = {cache.kind for cache in caches if cache.kind in STATES}
    return int(all(kind in since and holds({"since": since[kind]}, version) for kind in kinds))


def _state_page(cache: LayerCache, checkpoint: Checkpoint, tensor: int, rules: Rules, state_dtype: str | None) -> int:
    return state_bytes(cache, tensor, rules.speculative_tokens, checkpoint.dtype_bytes, state_dtype)


def _blocks(
    checkpoint: Checkpoint,
    caches: Sequence[LayerCache],
    dtype: KvDtype,
    tensor: int,
    rules: Rules,
    block_size: int | None,
    kernel_block: int,
    state_dtype: str | None,
    context: int | None,
) -> tuple[int, int | None, int]:
    """Tokens of the attention block, bytes of a padded state page, tokens of a state block."""
    table = knowledge("kv_cache")
    blocks: Any = table["blocks"]
    block = block_size or max(int(blocks["default"]), kernel_block)
    if block_size is None:
        sparse = any(cache.kind == "indexer" for cache in caches)
        fixed = [cache.block for cache in caches if cache.kind == "mla" and cache.block is not None]
        block = max([block, int(blocks["sparse_latent"]) if sparse else 0, *fixed])
    states = [cache for cache in caches if cache.kind in STATES]
    if not states:
        return block, None, block
    native = context or checkpoint.native_context or block
    attention = next((cache for cache in caches if cache.kind not in STATES and not cache.draft), None)
    if attention is None:
        return block, None, native if rules.state_mode == "none" else block
    row = token_bytes(attention, dtype, tensor)
    page = max(_state_page(cache, checkpoint, tensor, rules, state_dtype) for cache in states)
    alignment = max(block, kernel_block)
    if attention.kind == "mla" and rules.on("latent_hybrid_block_128"):
        alignment = max(alignment, int(blocks["latent_hybrid"]))
    chunk = None
    if rules.state_mode == "all":
        known = table["state_mode_all_model_types"]
        chunk = next(
            (int(checkpoint.text[key]) for key in known["chunk_keys"] if checkpoint.text.get(key)),
            int(known["chunk"]),
        )
    block, padded = hybrid_block(row, page, alignment, chunk)
    return block, padded, native if rules.state_mode == "none" else block


def memory_findings(
    checkpoint: Checkpoint,
    kv_cache_dtype: str = "auto",
    speculative: Speculative | None = None,
    vllm_version: str = DEFAULT_VLLM_VERSION,
) -> tuple[Finding, ...]:
    """What the user should know about how the cache was counted."""
    found = list(attention_findings(checkpoint))
    caches = layer_caches(checkpoint)
    forced = knowledge("kv_cache")["forced_dtypes"]
    stored = stored_kv_dtype(checkpoint, kv_cache_dtype, caches)
    compressed = any(cache.block is not None for cache in caches)
    if stored != kv_cache_dtype and kv_cache_dtype == "auto" and not compressed:
        found.append(
            Finding(
                "note",
                "kv-dtype-from-checkpoint",
                f"The KV cache is kept in {stored}: the checkpoint ships scales for it.",
                "vLLM reads --kv-cache-dtype auto as the scheme of the checkpoint's quantization.",
                "Set vllm_kv_cache_dtype to bfloat16 to keep 16 bits, at twice the memory.",
                "vLLM 0.26 utils/torch_utils.py, resolve_kv_cache_dtype_string",
            )
        )
    elif stored == "auto" and any(cache.kind == "indexer" for cache in caches):
        found.append(
            Finding(
                "note",
                "sparse-kv-dtype-on-sm12",
                "The KV cache is counted in 16 bits; on SM 12 the sparse kernels store packed fp8 rows.",
                "They know no other format there, whatever --kv-cache-dtype says: about half the memory.",
                "Set vllm_kv_cache_dtype to fp8_ds_mla to have it counted so.",
                forced["source"],
            )
        )
    if compressed and stored not in ("fp8_ds_mla", "auto", "bfloat16", "fp8_e5m2"):
        found.append(
            Finding(
                "warning",
                "kv-dtype-not-modelled",
                f"How {stored} lays out the pages of this model is not known; the figures are a guess.",
                "The format belongs to a build of vLLM whose page layout was not read.",
                "Trust the 'Maximum concurrency' line of the first start, or set vllm_kv_cache_dtype to fp8.",
                forced["source"],
            )
        )
    method = speculative.method if speculative else "mtp"
    if method != "mtp" and not method.endswith("_mtp"):
        row = _draft_row(checkpoint, method)
        if row.get("sure") != "documented":
            found.append(
                Finding(
                    "note",
                    "draft-cache-assumed",
                    f"The draft's own KV cache is assumed: {row['layers']} attention layers.",
                    "The draft's config is not part of the checkpoint.",
                    "Compare the 'Maximum concurrency' line of the first start.",
                    str(row.get("source", "")),
                )
            )
    return tuple(found)
