# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parameters and bytes of a checkpoint, by part, by layer and by pipeline stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .blocks import Dimensions, Tensor, tensors
from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .quantization import UNQUANTIZED, Quantization, Rule, module_rule, needs_layer
from .towers import tower_parameters


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters and bytes of one part: a layer, the embedding, the head, a tower ...

    ``active`` are the parameters a token reads; ``quantized_bytes`` and ``plain_bytes`` add up to what is loaded,
    ``whole_bytes`` is the share of it that each tensor-parallel rank holds in full; ``active_quantized_bytes`` and
    ``active_plain_bytes`` are what a token reads. ``stored_bytes`` is the size in the file.
    """

    parameters: int = 0
    active: int = 0
    quantized_bytes: float = 0.0
    plain_bytes: float = 0.0
    whole_bytes: float = 0.0
    active_quantized_bytes: float = 0.0
    active_plain_bytes: float = 0.0
    stored_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """Bytes when loaded."""
        return self.quantized_bytes + self.plain_bytes

    def __add__(self, other: Part) -> Part:
        return Part(
            self.parameters + other.parameters,
            self.active + other.active,
            self.quantized_bytes + other.quantized_bytes,
            self.plain_bytes + other.plain_bytes,
            self.whole_bytes + other.whole_bytes,
            self.active_quantized_bytes + other.active_quantized_bytes,
            self.active_plain_bytes + other.active_plain_bytes,
            self.stored_bytes + other.stored_bytes,
        )


@dataclass(frozen=True)
class Weights:
    """What a checkpoint holds, part by part, worked out from its config.

    ``layers`` has one part a decoder layer. ``first`` (embedding tables read by row, projections before the layers)
    lies on the first pipeline stage, ``last`` (the final norm) on the last, ``both`` on every stage. A tied head is
    not counted again. ``vision`` are towers and projectors, ``mtp`` the multi-token-prediction layers.
    ``parameters`` and ``active_parameters`` are the text model without the latter two; the input embedding is not
    active, the head is. ``findings`` say what could not be known.
    """

    layers: tuple[Part, ...]
    embedding: Part
    head: Part
    first: Part
    last: Part
    both: Part
    vision: Part
    mtp: Part
    tied: bool
    findings: tuple[Finding, ...] = ()

    @property
    def text(self) -> Part:
        """The text model without multi-token-prediction layers."""
        total = self.embedding + self.first + self.last + self.both
        if not self.tied:
            total += self.head
        return sum(self.layers, total)

    @property
    def parameters(self) -> int:
        """Parameters of the text model without multi-token-prediction layers."""
        return self.text.parameters

    @property
    def active_parameters(self) -> int:
        """Parameters a token reads: without experts it is not routed to and tables read by row, with the head."""
        return sum(part.active for part in (*self.layers, self.first, self.last, self.both, self.head))

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of the files: text model, towers and multi-token-prediction layers."""
        return round(self.text.stored_bytes + self.vision.stored_bytes + self.mtp.stored_bytes)

    @property
    def loaded_bytes(self) -> int:
        """Bytes in memory on one node: text model and towers, without multi-token-prediction layers."""
        return round(self.text.bytes + self.vision.bytes)


@dataclass(frozen=True)
class ActiveBytes:
    """Bytes of weights read for each decoded token, split by how they are stored."""

    quantized: int
    unquantized: int

    @property
    def total(self) -> int:
        """All bytes read for a token."""
        return self.quantized + self.unquantized


def split_layers(
    layers: int, stages: int, partition: Sequence[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """``[first, last + 1]`` of each pipeline stage.

    Layers that are left over go to the stages before the last, from the back: the last has the head already
    (vLLM 0.33, distributed/utils.py, get_pp_indices). ``partition`` is VLLM_PP_LAYER_PARTITION.
    """
    if stages < 1 or stages > layers:
        raise InputError("pipeline_parallel_size", f"expected 1 to {layers} stages for {layers} layers, got {stages}")
    if partition is not None:
        sizes = list(partition)
        if len(sizes) != stages or sum(sizes) != layers or min(sizes) < 1:
            raise InputError(
                "pipeline_partition", f"expected {stages} positive numbers that add up to {layers}, got {sizes}"
            )
    else:
        base, left = divmod(layers, stages)
        sizes = [base] * stages
        for stage in range(2, left + 2):
            sizes[-stage] += 1
    bounds: list[tuple[int, int]] = []
    first = 0
    for size in sizes:
        bounds.append((first, first + size))
        first += size
    return tuple(bounds)


def _part(
    rows: Sequence[Tensor],
    checkpoint: Checkpoint,
    rules: Sequence[Rule],
    layer: int | None,
    quantizable: bool = True,
) -> Part:
    """The sum of these tensors."""
    quantization: Quantization = checkpoint.quantization
    stored, runs = checkpoint.stored_bytes, checkpoint.dtype_bytes
    parameters = active = 0
    quantized = plain = whole = active_quantized = active_plain = in_file = 0.0
    for tensor in rows:
        size = tensor.rows * tensor.columns
        scheme = UNQUANTIZED
        if quantizable and not tensor.plain and quantization.method != "none":
            scheme = quantization.choose(tensor.name, rules, layer)
        if scheme is UNQUANTIZED:
            one, one_stored = float(size * runs), float(size * stored)
            plain += one * tensor.copies
            active_plain += one * tensor.read
        else:
            one = one_stored = scheme.stored_bytes(tensor.rows, tensor.columns)
            quantized += one * tensor.copies
            active_quantized += one * tensor.read
        in_file += one_stored * tensor.copies
        if tensor.whole:
            whole += one * tensor.copies
        if not tensor.uncounted:
            parameters += size * tensor.copies
            active += size * tensor.read
    return Part(parameters, active, quantized, plain, whole, active_quantized, active_plain, in_file)


def _layer_parts(checkpoint: Checkpoint, missing: list[str]) -> tuple[Part, ...]:
    """Each decoder layer; equal layers are worked out once."""
    general, single = checkpoint.quantization.layer_rules()
    apart = any(needs_layer(rule) for rule in general)
    own = _own_rules(checkpoint)
    rows: dict[object, list[Tensor]] = {}
    parts: dict[object, Part] = {}
    result = []
    for index, kind in enumerate(checkpoint.kinds):
        if kind not in rows:
            rows[kind], lacking = tensors(_references(checkpoint, kind.mixer, kind.mlp), checkpoint.dimensions(index), True)
            missing += lacking
        rules = single.get(index, ())
        key = (kind, tuple((rule.kind, rule.name, rule.scheme) for rule in rules), index if apart else None)
        if key not in parts:
            parts[key] = _part(rows[kind], checkpoint, (*own, *rules, *general), index)
        result.append(parts[key])
    return tuple(result)


def _own_rules(checkpoint: Checkpoint) -> tuple[Rule, ...]:
    """What the family's row says about tensors that the quantization config is silent about."""
    found = []
    quantization = checkpoint.quantization
    for entry in checkpoint.row.get("quantized", ()):
        if any(checkpoint.text.get(key) != value for key, value in entry.get("where", {}).items()):
            continue
        unlisted = entry.get("unlisted")
        if unlisted and (quantization.format != unlisted or quantization.rules):
            continue
        found += [module_rule(None, name, entry["format"]) for name in entry["tensors"]]
    return tuple(found)


def _references(checkpoint: Checkpoint, mixer: str, mlp: str) -> list[str]:
    """The blocks of a layer with this mixer and this feed-forward part."""
    row = checkpoint.row
    mixers = row["mixers"]
    blocks = list(row["layer"])
    if mixer != "none":
        blocks += mixers.get(mixer) or mixers.get("*") or []
    if mlp != "none":
        blocks += row["mlps"].get(mlp) or row["mlps"].get("sparse" if mlp == "hash" else "dense") or []
    return blocks


def _mtp(checkpoint: Checkpoint, missing: list[str]) -> Part:
    """The multi-token-prediction layers, as the files hold them."""
    recipe = checkpoint.row.get("mtp")
    count = int(checkpoint.numbers.get("stored_mtp_layers") or checkpoint.mtp_layers)
    if not count:
        return Part()
    recipe = recipe or {"mixer": "full_attention", "mlp": "dense", "extra": ["mtp_join"]}
    dimensions = checkpoint.numbers
    own = checkpoint.row.get("kinds", {}).get(recipe["mixer"], {})
    if own:
        dimensions = dimensions.with_numbers({}, own)
    mlp = recipe["mlp"] if checkpoint.sparsity == "moe" or recipe["mlp"] != "sparse" else "dense"
    rows, lacking = tensors([*_references(checkpoint, recipe["mixer"], mlp), *recipe.get("extra", ())], dimensions, True)
    once, _ = tensors(recipe.get("once", ()), dimensions, True)
    missing += lacking
    rules = checkpoint.quantization.layer_rules()
    general = [rule for rule in rules[0] if not (rule.kind == "glob" and rule.name.startswith("mtp"))]
    single = rules[1].get(checkpoint.layers, ())
    left_alone = any(rule.name.startswith("mtp") for rule in rules[0])
    layer = _part(rows, checkpoint, (*_own_rules(checkpoint), *single, *general), checkpoint.layers, quantizable=not left_alone)
    total = _part(once, checkpoint, (), None, quantizable=False)
    for _ in range(count):
        total += layer
    return total


@lru_cache(maxsize=64)
def _weigh(checkpoint: _ByIdentity) -> Weights:
    return _weighed(checkpoint.value)


class _ByIdentity:
    """A checkpoint as a key of the cache: the same object, not an equal one."""

    __slots__ = ("value",)

    def __init__(self, value: Checkpoint) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value


def weigh(checkpoint: Checkpoint) -> Weights:
    """Parameters and bytes of ``checkpoint``, worked out from its config (remembered for the same object)."""
    return _weigh(_ByIdentity(checkpoint))


def _weighed(checkpoint: Checkpoint) -> Weights:
    missing: list[str] = []
    layers = _layer_parts(checkpoint, missing)
    rows, lacking = tensors(checkpoint.row["top"], checkpoint.numbers, False)
    missing += lacking
    places: dict[str, list[Tensor]] = {}
    for tensor in rows:
        places.setdefault(tensor.place, []).append(tensor)
    general = checkpoint.quantization.layer_rules()[0]
    mtp = _mtp(checkpoint, missing)

    towers, guessed = tower_parameters(checkpoint.config, checkpoint.hidden_size)
    vision = Part(
        parameters=towers,
        plain_bytes=towers * checkpoint.dtype_bytes,
        whole_bytes=towers * checkpoint.dtype_bytes,
        stored_bytes=towers * checkpoint.stored_bytes,
    )

    def part(place: str, quantizable: bool = True) -> Part:
        return _part(places.get(place, ()), checkpoint, general, None, quantizable)

    return Weights(
        layers=layers,
        embedding=part("embedding", False),
        head=part("head", checkpoint.quantization.head and not checkpoint.tied_embeddings),
        first=part("first"),
        last=part("last"),
        both=part("both"),
        vision=vision,
        mtp=mtp,
        tied=checkpoint.tied_embeddings,
        findings=(*_missing(checkpoint, missing), *guessed),
    )


def _missing(checkpoint: Checkpoint, names: Sequence[str]) -> tuple[Finding, ...]:
    if not names:
        return ()
    listed = ", ".join(sorted(set(names)))
    return (
        Finding(
            "warning",
            "config-key-missing",
            f"config.json lacks {listed}.",
            "The tensors that need these sizes are not counted: the estimate is too small.",
            "Give model.weight_bytes (the sum of the safetensors), or a complete config.json.",
            "config.json",
        ),
    )


def stage_weights(
    checkpoint: Checkpoint, pipeline: int, tensor: int = 1, partition: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Bytes of weights on each node, stage by stage (``pipeline * tensor`` entries)."""
    weights = weigh(checkpoint)
    stages = []
    for stage, (first, end) in enumerate(split_layers(checkpoint.layers, pipeline, partition)):
        total = sum(weights.layers[first:end], weights.both)
        if stage == 0:
            total += weights.embedding + weights.first + weights.vision
        if stage == pipeline - 1:
            total += weights.last
            if not weights.tied:
                total += weights.head
            elif pipeline > 1:
                total += weights.embedding
        shared = total.whole_bytes
        stages += [round((total.bytes - shared) / tensor + shared)] * tensor
    return tuple(stages)


def active_weight_bytes(checkpoint: Checkpoint) -> ActiveBytes:
    """Bytes of weights read for each decoded token at batch 1."""
    weights = weigh(checkpoint)
    parts = (*weights.layers, weights.first, weights.last, weights.both, weights.head)
    return ActiveBytes(
        quantized=round(sum(part.active_quantized_bytes for part in parts)),
        unquantized=round(sum(part.active_plain_bytes for part in parts)),
    )


_NAME_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
__all__ = ["ActiveBytes", "Dimensions", "Part", "Weights", "active_weight_bytes", "split_layers", "stage_weights", "weigh"]
