# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a plan says about placement, memory and speed: findings made from numbers, in one voice."""

from __future__ import annotations

from collections.abc import Sequence

from .findings import Finding
from .placement import GIB, Budget, Layout, Node

_FIELD = "field notes"
_UNSLOTH = "unslothai/unsloth pull request 10280: one 70B FP8 model on one and two Sparks, vLLM, 2026-09"
_REQUEST = "vLLM 0.33, v1/worker/utils.py, request_memory"


def gib(size: float) -> str:
    """Bytes as GiB with one decimal."""
    return f"{size / GIB:.1f} GiB"


def rate(tokens_per_second: float) -> str:
    """Three figures, never as a power of ten."""
    return f"{tokens_per_second:,.0f}" if tokens_per_second >= 1000 else f"{tokens_per_second:.3g}"


def does_not_fit(layout: Layout, ways: Sequence[str]) -> Finding:
    """Some node would need more than it may take; ``ways`` are changes that were tried and would fit."""
    worst = max(range(len(layout.nodes)), key=lambda i: layout.footprints[i] - layout.budget.limit_bytes[i])
    need, limit = layout.footprints[worst], layout.budget.limit_bytes[worst]
    return Finding(
        "error",
        "memory-does-not-fit",
        f"{layout.nodes[worst].name} would need {gib(need)} and may take {gib(limit)}: {gib(need - limit)} too much.",
        f"The limit is {layout.budget.reason}.",
        "; or ".join(ways) if ways else "Take a smaller model or a smaller quantization of it, or more nodes.",
        _FIELD,
    )


def cache_too_small(concurrency: float, requests: int, context: int, largest: int) -> Finding:
    """The cache as asked for does not hold what must fit: vLLM would not start, or the wish not be met."""
    fix = f"shorten the context (vllm_context: {largest})" if largest else "leave it out"
    return Finding(
        "error",
        "cache-too-small",
        f"The cache holds {concurrency:.2f} requests of {context:,} tokens, and {requests} must fit.",
        "vLLM does not start when its cache cannot hold one request of full length.",
        f"Raise vllm_kv_cache_memory_bytes or vllm_gpu_memory_utilization, or {fix}.",
        "vLLM 0.33, v1/core/kv_cache_planning.py",
    )


def near_the_limit(layout: Layout) -> Finding:
    """A node goes beyond what is known to load without trouble."""
    index = max(range(len(layout.nodes)), key=lambda i: layout.footprints[i] - layout.budget.comfortable_bytes[i])
    return Finding(
        "warning",
        "footprint-near-the-limit",
        f"{layout.nodes[index].name} would hold {gib(layout.footprints[index])}, more than the"
        f" {gib(layout.budget.comfortable_bytes[index])} that load reliably.",
        "Loading takes more than the weights for a while; deployments across nodes have died at this size.",
        "Add a node (vllm_nodes), shorten vllm_context, or take a smaller quantization.",
        _FIELD,
    )


def pipeline_refused(architecture: str, asked: bool, tensor_sizes: Sequence[int]) -> Finding:
    """vLLM cannot cut this architecture into stages."""
    sizes = " or ".join(str(size) for size in tensor_sizes)
    return Finding(
        "error",
        "pipeline-not-supported",
        f"vLLM cannot run {architecture} in pipeline stages.",
        "Its class does not carry SupportsPP, so vLLM refuses --pipeline-parallel-size above 1."
        + (" One node does not hold it." if not asked else ""),
        f"Set vllm_placement: tensor on {sizes} nodes with a proven fabric, or a quantization for one node."
        if sizes
        else "Take a quantization of it that fits one node.",
        "vLLM 0.33, config/model.py, verify_with_parallel_config",
    )


def tensor_offered(nodes: int, expected: float, now: float) -> Finding:
    """Tensor parallel would be faster; say what it costs."""
    return Finding(
        "note",
        "tensor-parallel-possible",
        f"Tensor parallel over the {nodes} nodes would decode a single stream at about"
        f" {rate(expected)} tokens/s instead of {rate(now)}.",
        "It reduces over the link in every layer: about twice as fast as a pipeline over proven RoCE, brutal"
        " on plain Ethernet, and hangs under load have been reported.",
        "Measure the fabric (dgx_spark.vllm.preflight), then set vllm_placement: tensor.",
        _UNSLOTH,
    )


def tensor_chosen(nodes: int, measured_fabric: bool) -> Finding:
    """The user asked for tensor parallel: the trade, once more."""
    return Finding(
        "note" if measured_fabric else "warning",
        "tensor-parallel-needs-the-fabric",
        f"Tensor parallel over {nodes} nodes reduces over the link in every layer.",
        "Over RoCE it about doubles a single stream; over plain Ethernet it is slower than one node. Hangs"
        " under sustained load have been reported at any tensor parallel size across nodes.",
        "Prove the fabric first (dgx_spark.vllm.preflight); vllm_placement: pipeline is the robust choice.",
        _UNSLOTH + "; " + _FIELD,
    )


def draft_in_a_pipeline(version: str) -> Finding:
    """Draft layers and pipeline stages came together late."""
    return Finding(
        "warning",
        "draft-in-a-pipeline",
        f"Speculative decoding in a pipeline is young, and the image holds vLLM {version}.",
        "Draft classes gained pipeline stages between 0.25.1 and 0.33, and fastsafetensors loads no draft"
        " that lies on one stage alone.",
        "Use vLLM 0.33 or newer and the plain loader, or leave vllm_speculative out.",
        "vLLM 0.33, v1/worker/gpu/spec_decode/utils.py; model registry of 0.25.1 and 0.33",
    )


def sustained_load(fits_one_node: bool) -> Finding:
    """Several nodes are for capacity; heavy load belongs on one."""
    return Finding(
        "warning" if fits_one_node else "note",
        "sustained-load-on-one-node",
        "Use a deployment across nodes for short and interactive work.",
        "Under sustained load the message queue between nodes has deadlocked (sample_tokens timed out).",
        "For high volume run a model that fits one node there"
        + (", which this one does: set vllm_placement: single." if fits_one_node else "."),
        _FIELD + "; vllm-project/vllm issues 46611, 50835",
    )


def dense(expected: float, active_bytes: int, bits_per_weight: float) -> Finding:
    """A dense model reads all of itself for every token."""
    smaller = ", or a 4-bit quantization of this one" if bits_per_weight > 5 else ""
    return Finding(
        "warning" if expected < 20 else "note",
        "dense-model",
        f"A dense model: every token reads {active_bytes / 1e9:.3g} GB of weights, so expect about"
        f" {rate(expected)} tokens/s for one request.",
        "Decoding is bound by memory bandwidth, and a mixture of experts reads its active experts alone.",
        f"Prefer a mixture-of-experts model of the same quality if there is one{smaller}.",
        _FIELD,
    )


def kernels_to_try(kinds: Sequence[str]) -> Finding:
    """Kinds of attention whose kernels have asked for more shared memory than a GB10 has."""
    return Finding(
        "note",
        "attention-kernels-to-try",
        f"Try one request: {' and '.join(kinds)} kernels have asked for more shared memory than a GB10 has.",
        "It has 101,376 bytes a block. Where a kernel wants more, starting works and the first request"
        " fails; many models of these kinds run, and no flag helps those that do not.",
        "Deploying sends such a request. If it fails, wait for a newer vLLM or take another model.",
        _FIELD,
    )


def few_at_once(concurrency: float, sequences: int, context: int) -> Finding:
    """Fewer requests of full length fit than may run at once."""
    return Finding(
        "note",
        "few-full-length-requests",
        f"{concurrency:.1f} requests of {context:,} tokens fit at once, and up to {sequences} may run.",
        "When the cache is full vLLM preempts a request and computes it again later.",
        "Nothing to do for shorter requests; else shorten vllm_context or set vllm_kv_cache_dtype: fp8.",
        "vLLM 0.33, v1/core/sched/scheduler.py",
    )


def context_can_grow(context: int, largest: int, native: int | None) -> Finding:
    """There is room for a longer context."""
    whole = " (all the model was trained for)" if native == largest else ""
    return Finding(
        "note",
        "context-can-grow",
        f"Up to {largest:,} tokens of context{whole} would fit; {context:,} are planned.",
        "A longer context takes memory from the number of requests at once.",
        f"Set vllm_context: {largest}.",
        "this plan",
    )


def better_split(partition: Sequence[int], saved: int) -> Finding:
    """Another number of layers per stage balances the nodes."""
    split = ",".join(str(size) for size in partition)
    return Finding(
        "note",
        "layers-can-be-balanced",
        f"Stages of {split} layers would take {gib(saved)} off the fullest node.",
        "vLLM splits by number of layers; embeddings, head and unlike layers make stages unequal.",
        f"Set vllm_extra_env: {{VLLM_PP_LAYER_PARTITION: '{split}'}}.",
        "vLLM 0.33, distributed/utils.py, get_pp_indices",
    )


def loading_peak(node: Node, peak: int, transient: int) -> Finding:
    """Weights and what loading takes besides leave the system too little."""
    return Finding(
        "warning",
        "loading-needs-more",
        f"While loading {node.name} would hold about {gib(peak)} of {gib(node.memory_total_bytes)},"
        f" {gib(transient)} more than afterwards.",
        "Shards go through the page cache and are rearranged; machines have died at 73 to 97 % of a load.",
        "Drop the page cache first, add --load-format fastsafetensors (vllm_extra_args), or add a node.",
        _FIELD + "; MiaAI-Lab reports of two-node loads, 2026",
    )


def assumed_nodes(nodes: Sequence[Node]) -> Finding:
    """Nobody asked the nodes."""
    names = ", ".join(node.name for node in nodes)
    return Finding(
        "note",
        "nodes-assumed",
        f"Nobody asked {names}: a GB10 with {gib(nodes[0].memory_total_bytes)} and"
        f" {nodes[0].bandwidth_gb_s:g} GB/s is assumed.",
        "The plan was made without the nodes' facts.",
        "",
        "knowledge/hardware.yml",
    )


def memory_in_use(node: Node, wanted: int, budget: Budget) -> Finding:
    """Something else holds memory on a node now, so the plan takes less."""
    free = node.memory_available_bytes or 0
    return Finding(
        "warning",
        "memory-in-use",
        f"{node.name} has {gib(free)} available now, so the plan takes"
        f" {gib(max(min(budget.limit_bytes), 0))} there instead of {gib(wanted)}.",
        "vLLM refuses to start when less memory is available than its share of the whole.",
        f"Stop what else runs on {node.name}, or accept the smaller cache.",
        _REQUEST,
    )


def less_available_than_asked(node: Node, asked: float) -> Finding:
    """vLLM would not start with the asked share."""
    free = node.memory_available_bytes or 0
    return Finding(
        "error",
        "less-available-than-asked",
        f"{node.name} has {gib(free)} available now, less than the asked {asked:g} of {gib(node.memory_total_bytes)}.",
        "vLLM refuses to start when less memory is available than its share of the whole.",
        f"Stop what else runs on {node.name}, or leave vllm_gpu_memory_utilization out.",
        _REQUEST,
    )


def beyond_the_reserve(node: Node, wanted: float, reserve: int) -> Finding:
    """The asked share leaves the operating system too little."""
    return Finding(
        "warning",
        "little-left-for-the-system",
        f"gpu_memory_utilization {wanted:g} leaves {gib(node.memory_total_bytes * (1 - wanted))} of"
        f" {node.name} to everything else; {gib(reserve)} are advised.",
        "CPU and GPU share the memory: profiling has overshot the share and taken the machine with it.",
        "Set vllm_gpu_memory_utilization to 0.85 or less.",
        "vllm-project/vllm issue 46307",
    )
