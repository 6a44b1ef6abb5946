# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a plan is served: the arguments of `vllm serve`, each with its reason, and every node's environment.

Nothing here decides about memory or placement. Every flag is held against the version of the image: one it
does not know is never emitted. What changes with time lies in ``knowledge/``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .checkpoint import Checkpoint
from .engine import Engine, check_layout
from .environment import environment
from .findings import Finding
from .flags import Argument, check_extra, knows, speculative_config
from .images import Image, Layer, layer
from .knowledge import knowledge
from .parsers import Parsers, choose_parsers
from .placement import Node, Placement
from .remote_code import remote_code
from .serving_advice import (
    address_advice,
    layer_advice,
    speculative_advice,
    template_advice,
    thinking_advice,
    tokenizer_advice,
)
from .versions import holds
from .wishes import Wishes


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """How to serve: ``args`` follow `vllm serve MODEL` on every node, ``node_args`` are one node's own.

    ``layers`` are the packages a derived image adds, ``layer_requirements`` what to ask pip for.
    ``plugin_files`` maps a path in the container to the file of the repository that belongs there.
    """

    image: str
    vllm_version: str
    args: tuple[str, ...]
    node_args: Mapping[str, tuple[str, ...]]
    env_common: Mapping[str, str]
    env_nodes: Mapping[str, Mapping[str, str]]
    layers: tuple[str, ...]
    layer_requirements: Mapping[str, str]
    plugin_files: Mapping[str, str]
    reasons: Mapping[str, str]
    thinking: str
    remote_code: bool
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """The contract's ``serve`` keys, and what roles need beside them."""
        return {
            "image": self.image,
            "vllm_version": self.vllm_version,
            "args": list(self.args),
            "node_args": {name: list(words) for name, words in self.node_args.items()},
            "env": {
                "common": dict(self.env_common),
                "nodes": {name: dict(values) for name, values in self.env_nodes.items()},
            },
            "layers_added_to_image": list(self.layers),
            "layer_requirements": dict(self.layer_requirements),
            "plugin_files": dict(self.plugin_files),
            "reasons": dict(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str
    value: str | None
    why: str

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name,) if self.value is None else (self.name, self.value)


def serve_spec(
    checkpoint: Checkpoint,
    wishes: Wishes,
    image: Image,
    engine: Engine,
    placement: Placement,
    nodes: Sequence[Node],
    gpu_memory_utilization: float,
    utilization_reason: str,
    parser_files: Mapping[str, str] | None = None,
) -> ServeSpec:
    """Arguments, environment and layers for a placement. ``nodes`` are the placement's, head first."""
    at = image.version
    check_layout(checkpoint, placement.tensor_parallel_size, placement.launcher, len(nodes), at)
    parsers = choose_parsers(
        checkpoint, at, wishes.reasoning_parser, wishes.tool_call_parser, parser_files, image.exact
    )
    code = remote_code(checkpoint, at, wishes.trust_remote_code)
    own, own_findings = check_extra(wishes.extra_args, at, image.exact)
    backend = _moe_backend(checkpoint, at, own)
    flags = [
        *_identity(checkpoint, wishes),
        *_engine_flags(engine, wishes, gpu_memory_utilization, utilization_reason),
        *_family_flags(parsers),
        *_parser_flags(parsers),
        *([_Flag("--moe-backend", backend["value"], backend["why"])] if backend else []),
        *([_Flag("--trust-remote-code", None, code.why)] if code.flag else []),
        *_layout_flags(placement, len(nodes)),
    ]
    users = {argument.flag for argument in own}
    kept = [flag for flag in flags if knows(flag.name, at) and flag.name not in users]
    node_flags = _node_flags(placement, nodes)
    variables = environment(at, nodes, placement.launcher, placement.partition, wishes.extra_env)
    layers = _layers(image, placement, len(nodes), parsers, own, backend)
    findings = (
        *image.findings,
        *engine.findings,
        *parsers.findings,
        *code.findings,
        *own_findings,
        *variables.findings,
        *(_not_in_version(flag, at) for flag in flags if not knows(flag.name, at)),
        *(_overruled(flag) for flag in flags if flag.name in users),
        *([Finding(**backend["finding"])] if backend and "finding" in backend else ()),
        *thinking_advice(parsers, engine, len(nodes)),
        *template_advice(checkpoint, parsers, users),
        *tokenizer_advice(checkpoint, at, users),
        *speculative_advice(wishes),
        *address_advice(placement, nodes),
        *layer_advice(image, placement, len(nodes)),
    )
    return ServeSpec(
        image=image.reference,
        vllm_version=at,
        args=tuple(word for flag in kept for word in flag.words)
        + tuple(word for argument in own for word in argument.words),
        node_args={
            name: tuple(word for flag in own_flags for word in flag.words) for name, own_flags in node_flags.items()
        },
        env_common=variables.common,
        env_nodes=variables.nodes,
        layers=tuple(item.package for item in layers),
        layer_requirements={item.package: item.requirement for item in layers},
        plugin_files={plugin.path: plugin.file for plugin in parsers.plugins},
        reasons=_reasons(image, kept, node_flags, own, variables.reasons, layers),
        thinking=parsers.thinking,
        remote_code=code.flag,
        findings=tuple(dict.fromkeys(findings)),
    )


def _identity(checkpoint: Checkpoint, wishes: Wishes) -> Iterator[_Flag]:
    if wishes.served_model_name:
        yield _Flag("--served-model-name", wishes.served_model_name, "asked for with served_model_name")
    elif checkpoint.id.startswith(("/", ".", "~")):
        name = checkpoint.id.rstrip("/").rsplit("/", 1)[-1]
        yield _Flag("--served-model-name", name, "the API would show the path otherwise")
    if wishes.api_port is not None:
        yield _Flag("--port", str(wishes.api_port), "asked for with api_port")


def _engine_flags(engine: Engine, wishes: Wishes, utilization: float, why: str) -> Iterator[_Flag]:
    reasons = engine.reasons
    yield _Flag("--max-model-len", str(engine.context), reasons["--max-model-len"])
    yield _Flag("--gpu-memory-utilization", f"{utilization:.4g}", why)
    if wishes.kv_cache_memory_bytes is not None:
        bytes_ = str(wishes.kv_cache_memory_bytes)
        yield _Flag("--kv-cache-memory-bytes", bytes_, "asked for with kv_cache_memory_bytes")
    yield _Flag("--max-num-seqs", str(engine.max_num_seqs), reasons["--max-num-seqs"])
    batched = str(engine.max_num_batched_tokens)
    yield _Flag("--max-num-batched-tokens", batched, reasons["--max-num-batched-tokens"])
    if engine.kv_cache_dtype != "auto":
        dtype_why = reasons.get("--kv-cache-dtype", "as the memory is planned")
        yield _Flag("--kv-cache-dtype", engine.kv_cache_dtype, dtype_why)
    if engine.prefix_caching is not None:
        name = "--enable-prefix-caching" if engine.prefix_caching else "--no-enable-prefix-caching"
        yield _Flag(name, None, "asked for with prefix_caching")
    if wishes.speculative is not None:
        asked = wishes.speculative
        config = speculative_config(asked.method, asked.num_tokens, asked.model)
        yield _Flag("--speculative-config", config, "asked for with speculative")


def _family_flags(parsers: Parsers) -> Iterator[_Flag]:
    for argument in parsers.arguments:
        if argument.flag != "--kv-cache-dtype":
            yield _Flag(argument.flag, argument.value, argument.why)


def _parser_flags(parsers: Parsers) -> Iterator[_Flag]:
    for plugin in parsers.plugins:
        flag = "--reasoning-parser-plugin" if plugin.kind == "reasoning" else "--tool-parser-plugin"
        yield _Flag(flag, plugin.path, "the parser is a file of the repository")
    if parsers.reasoning:
        why = f"the model thinks ({parsers.thinking}); {parsers.reasons['reasoning']}"
        yield _Flag("--reasoning-parser", parsers.reasoning, why)
    if parsers.tool:
        why = "tool calls come back as such only with it"
        yield _Flag("--enable-auto-tool-choice", None, why)
        yield _Flag("--tool-call-parser", parsers.tool, parsers.reasons["tool"])
    if parsers.chat_template:
        why = "the repository's own template lacks the tool messages this parser reads"
        yield _Flag("--chat-template", parsers.chat_template, why)


def _layout_flags(placement: Placement, nodes: int) -> Iterator[_Flag]:
    if nodes < 2:
        return
    stages, ranks = placement.pipeline_parallel_size, placement.tensor_parallel_size
    stages_why = "the layers lie on the nodes in stages" if stages > 1 else "every node runs every layer"
    ranks_why = "the nodes share every layer" if ranks > 1 else "no layer is divided over the link"
    yield _Flag("--pipeline-parallel-size", str(stages), stages_why)
    yield _Flag("--tensor-parallel-size", str(ranks), ranks_why)
    if placement.launcher == "ray":
        yield _Flag("--distributed-executor-backend", "ray", "the nodes are joined by a Ray cluster")
    else:
        joined = "the nodes are joined by vLLM's own executor"
        yield _Flag("--distributed-executor-backend", "mp", joined)
        yield _Flag("--nnodes", str(nodes), joined)


def _node_flags(placement: Placement, nodes: Sequence[Node]) -> dict[str, list[_Flag]]:
    if len(nodes) < 2 or placement.launcher == "ray":
        return {node.name: [] for node in nodes}
    head = nodes[0].fabric_address
    flags: dict[str, list[_Flag]] = {}
    for rank, node in enumerate(nodes):
        flags[node.name] = [_Flag("--node-rank", str(rank), "the node's place; the head is 0")]
        if head:
            flags[node.name].append(_Flag("--master-addr", head, "the head's address on the fabric"))
        if rank:
            flags[node.name].append(_Flag("--headless", None, "only the head answers the API"))
    return flags


@cache
def _backend_rows() -> tuple[tuple[re.Pattern[str], re.Pattern[str], Mapping[str, Any]], ...]:
    return tuple(
        (re.compile(row["format"]), re.compile(row.get("method", "")), row) for row in knowledge("moe_backends")["rows"]
    )


def _moe_backend(checkpoint: Checkpoint, at: str, own: Sequence[Argument]) -> Mapping[str, Any] | None:
    """The row for the experts' kernels on SM 12.1; None for dense models and where the user has said."""
    if checkpoint.sparsity != "moe" or any(argument.flag == "--moe-backend" for argument in own):
        return None
    quantization = checkpoint.quantization
    return next(
        (
            row
            for format_, method, row in _backend_rows()
            if format_.search(quantization.format) and method.search(quantization.method) and holds(row, at)
        ),
        None,
    )


def _layers(
    image: Image,
    placement: Placement,
    nodes: int,
    parsers: Parsers,
    own: Sequence[Argument],
    backend: Mapping[str, Any] | None,
) -> tuple[Layer, ...]:
    packages = list(parsers.layers)
    if nodes > 1 and placement.launcher == "ray" and (image.stock or image.ngc):
        packages.append("ray")
    chosen = {argument.value for argument in own if argument.flag == "--moe-backend"}
    if backend:
        chosen.add(backend["value"])
    packages += [row["package"] for row in knowledge("moe_backends")["layers"] if row["value"] in chosen]
    found = (layer(package, image.version) for package in packages)
    return tuple(item for item in found if item is not None)


def _reasons(
    image: Image,
    kept: Sequence[_Flag],
    node_flags: Mapping[str, Sequence[_Flag]],
    own: Sequence[Argument],
    variables: Mapping[str, str],
    layers: Sequence[Layer],
) -> dict[str, str]:
    """Why, by flag, by variable, by layer, and for the image under ``image``."""
    per_node = {flag.name: flag.why for flags in node_flags.values() for flag in flags}
    return {
        "image": image.reason,
        **{flag.name: flag.why for flag in kept},
        **per_node,
        **{argument.words[0].partition("=")[0]: "asked for with extra_args" for argument in own},
        **variables,
        **{item.package: item.why for item in layers},
    }


def _not_in_version(flag: _Flag, at: str) -> Finding:
    return Finding(
        level="warning",
        id="flag-not-in-version",
        what=f"vLLM {at} does not know {flag.name}; it is left out.",
        why=f"It was meant because: {flag.why}.",
        fix="Use a newer image.",
        source="knowledge/flags.yml",
    )


def _overruled(flag: _Flag) -> Finding:
    return Finding(
        level="note",
        id="flag-overruled",
        what=f"{flag.name} comes from vllm_extra_args instead of {flag.value or 'the plan'}.",
        why=f"The plan had it because: {flag.why}.",
        fix=f"Take {flag.name} out of vllm_extra_args to return to the plan's.",
        source="vllm_extra_args",
    )
