# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parameters and bytes of a checkpoint, by part, by layer and by pipeline stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache

from .blocks import Tensor, tensors
from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .quantization import UNQUANTIZED, Quantization, Rule, needs_layer
from .towers import tower_parameters


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters and bytes of one part: a layer, the embedding, the head, a tower ...

    ``active`` are the parameters a token reads; ``quantized_bytes`` and ``plain_bytes`` add up to what is
    loaded, ``whole_bytes`` is the share of it that each tensor-parallel rank holds in full;
    ``active_quantized_bytes`` and ``active_plain_bytes`` are what a token reads. ``stored_bytes`` is the
    size in the file.
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

    def times(self, count: int) -> Part:
        """The same part ``count`` times."""
        return Part(*(value * count for value in astuple(self)))


@dataclass(frozen=True)
class Weights:
    """What a checkpoint holds, part by part, worked out from its config.

    ``layers`` has one part a decoder layer. ``first`` (embedding tables read by row, projections before the
    layers) lies on the first pipeline stage, ``last`` (the final norm) on the last, ``both`` on every
    stage. A tied head is not counted again. ``vision`` are towers and projectors, ``mtp`` the
    multi-token-prediction layers. ``parameters`` and ``active_parameters`` are the text model without the
    latter two; the input embedding is not active, the head is. ``findings`` say what could not be known.
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

    @cached_property
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

    @cached_property
    def active_parameters(self) -> int:
        """Parameters a token reads: only the experts it is routed to, no tables read by row, the head."""
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


def split_layers(layers: int, stages: int, partition: Sequence[int] | None = None) -> tuple[tuple[int, int], ...]:
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
                "pipeline_partition",
                f"expected {stages} positive numbers that add up to {layers}, got {sizes}",
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
    general, single = checkpoint.quantization.general_rules, checkpoint.quantization.single_rules
    apart = any(needs_layer(rule) for rule in general)
    rows: dict[int, list[Tensor]] = {}
    parts: dict[tuple[int, int, int], Part] = {}
    result = []
    none: tuple[Rule, ...] = ()
    for index, kind in enumerate(checkpoint.kinds):
        rules = single.get(index, none)
        key = (id(kind), id(rules), index if apart else -1)  # equal kinds and rules are the same objects
        part = parts.get(key)
        if part is None:
            if id(kind) not in rows:
                blocks = _references(checkpoint, kind.mixer, kind.mlp)
                rows[id(kind)], lacking = tensors(blocks, checkpoint.dimensions(index), True)
                missing += lacking
            part = parts[key] = _part(rows[id(kind)], checkpoint, (*rules, *general), index)
        result.append(part)
    return tuple(result)


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
    if count <= 0:
        return Part()
    recipe = recipe or {"mixer": "full_attention", "mlp": "dense", "extra": ["mtp_join"]}
    dimensions = checkpoint.numbers
    own = checkpoint.row.get("kinds", {}).get(recipe["mixer"], {})
    if own:
        dimensions = dimensions.with_numbers({}, own)
    mlp = recipe["mlp"] if checkpoint.sparsity == "moe" or recipe["mlp"] != "sparse" else "dense"
    rows, lacking = tensors(
        [*_references(checkpoint, recipe["mixer"], mlp), *recipe.get("extra", ())], dimensions, True
    )
    once, _lacking = tensors(recipe.get("once", ()), dimensions, True)
    missing += lacking
    general = checkpoint.quantization.general_rules
    rules = (*checkpoint.quantization.single_rules.get(checkpoint.layers, ()), *general)
    named = [rule for rule in general if rule.scheme is UNQUANTIZED and rule.name != "*"]
    left_alone = any(rule.matches("mtp.layers.0.any", None) for rule in named)
    layer = _part(rows, checkpoint, rules, checkpoint.layers, quantizable=not left_alone)
    return _part(once, checkpoint, (), None, quantizable=False) + layer.times(count)


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
    general = checkpoint.quantization.general_rules
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


# Where a tensor lies, by its name. A layer's number counts only outside towers.
_LAYER_NAME = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_TOWER_NAME = re.compile(r"vision|visual|audio|tower|\bvit\b|speech|projector|aligner|siglip")
_EMBEDDING_NAME = re.compile(
    r"(?:^|\.)(?:embed_tokens|word_embeddings|wte|embed_in|embeddings?|tok_embeddings|embed)\.[^.]+$"
)
_HEAD_NAME = re.compile(r"(?:^|\.)(?:lm_head|output_layer|output|embed_out|head)\.[^.]+$")
_LAST_NAME = re.compile(
    r"(?:^|\.)(?:norm|norm_f|ln_f|final_norm|final_layernorm|final_layer_norm|embedding_norm|hc_head)\b"
)


@dataclass(frozen=True)
class Located:
    """Bytes in memory by place in a pipeline: from the tensors' names, or from the config."""

    layers: tuple[float, ...]
    embedding: float
    head: float
    first: float
    last: float
    both: float


def _of_tensors(checkpoint: Checkpoint) -> Located:
    """Where the bytes of the named tensors lie; multi-token-prediction layers are left out."""
    layers = [0.0] * checkpoint.layers
    embedding = head = first = last = 0.0
    shrink = checkpoint.dtype_bytes / checkpoint.stored_bytes if checkpoint.quantization.method == "none" else 1.0
    for name, size in checkpoint.tensors.items():
        found = _LAYER_NAME.search(name)
        before = name[: found.start()] if found else name
        if "mtp" in name or "nextn" in name:
            continue
        if _TOWER_NAME.search(before):
            first += size
        elif found:
            index = int(found.group(1))
            if index < checkpoint.layers:
                layers[index] += size
        elif _EMBEDDING_NAME.search(name):
            embedding += size
        elif _HEAD_NAME.search(name):
            head += size
        elif _LAST_NAME.search(name):
            last += size
        else:
            first += size
    if checkpoint.tied_embeddings:
        head = 0.0
    return Located(
        tuple(size * shrink for size in layers),
        embedding * shrink,
        head * shrink,
        first * shrink,
        last * shrink,
        0.0,
    )


def file_ratio(checkpoint: Checkpoint) -> tuple[float, float]:
    """Size of the files over what the config lets expect, and how far the best explanation is from it.

    Files may lack the multi-token-prediction layers or the towers, or hold a tied head twice; the closest
    of these counts. 1 and 0 where ``weight_bytes`` is not known.
    """
    given = checkpoint.weight_bytes
    weights = weigh(checkpoint)
    if given is None:
        return 1.0, 0.0
    text, mtp, vision = weights.text.stored_bytes, weights.mtp.stored_bytes, weights.vision.stored_bytes
    twice = weights.embedding.stored_bytes if weights.tied else 0.0
    expected = {text + more + tower + again for more in (mtp, 0.0) for tower in (vision, 0.0) for again in (0.0, twice)}
    likely = {text + mtp + vision, text + vision}
    # What is usual explains a size as long as it does so within 2 %.
    near = [size for size in likely if abs(given / size - 1) < 0.02]
    best = min(near or expected, key=lambda size: abs(given / size - 1))
    return given / best, abs(given / best - 1)


def _located(checkpoint: Checkpoint) -> Located:
    if checkpoint.tensors:
        return _of_tensors(checkpoint)
    weights = weigh(checkpoint)
    ratio, _distance = file_ratio(checkpoint)
    return Located(
        layers=tuple(part.bytes * ratio for part in weights.layers),
        embedding=weights.embedding.bytes * ratio,
        head=0.0 if weights.tied else weights.head.bytes * ratio,
        first=(weights.first.bytes + weights.vision.bytes) * ratio,
        last=weights.last.bytes * ratio,
        both=weights.both.bytes * ratio,
    )


def stage_weights(
    checkpoint: Checkpoint, pipeline: int, tensor: int = 1, partition: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Bytes of weights in memory on each node, stage by stage (``pipeline * tensor`` entries).

    The embedding lies on the first stage, the norm and the head on the last; a tied head is the embedding
    once more on the last stage (vLLM 0.33, models/llama.py). Towers lie on the first.
    Multi-token-prediction layers are not loaded without speculative decoding and not counted. Tensor
    parallel splits all but norms, routers, towers and the down projections of latent attention. Exact where
    ``tensors`` are given; else the config's sizes, scaled to ``weight_bytes`` when that is known.
    """
    if tensor < 1:
        raise InputError("tensor_parallel_size", f"expected a whole number above 0, got {tensor}")
    weights = weigh(checkpoint)
    located = _located(checkpoint)
    stages: list[int] = []
    for stage, (start, end) in enumerate(split_layers(checkpoint.layers, pipeline, partition)):
        size = sum(located.layers[start:end]) + located.both
        whole = sum(part.whole_bytes for part in weights.layers[start:end]) + weights.both.whole_bytes
        if stage == 0:
            size += located.embedding + located.first
            whole += weights.first.whole_bytes + weights.vision.whole_bytes
        if stage == pipeline - 1:
            size += located.last + located.head
            whole += weights.last.whole_bytes
            if weights.tied and pipeline > 1:
                size += located.embedding
        whole = min(whole, size)
        stages += [round((size - whole) / tensor + whole)] * tensor
    return tuple(stages)


def loaded_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of weights in memory when one node holds them all."""
    return stage_weights(checkpoint, 1)[0]


def active_weight_bytes(checkpoint: Checkpoint) -> ActiveBytes:
    """Bytes of weights read for each decoded token at batch 1."""
    weights = weigh(checkpoint)
    parts = (*weights.layers, weights.first, weights.last, weights.both, weights.head)
    ratio, distance = file_ratio(checkpoint)
    if distance > 0.25:  # the files are something else than this config; the config is what runs
        ratio = 1.0
    return ActiveBytes(
        quantized=round(sum(part.active_quantized_bytes for part in parts) * ratio),
        unquantized=round(sum(part.active_plain_bytes for part in parts) * ratio),
    )


def weight_findings(checkpoint: Checkpoint) -> tuple[Finding, ...]:
    """What about the weights could not be known, or does not add up."""
    found = list(weigh(checkpoint).findings)
    if not checkpoint.known:
        found.append(_bounds(checkpoint))
    _ratio, distance = file_ratio(checkpoint)
    if checkpoint.weight_bytes is not None and distance > _SUSPICIOUS and checkpoint.known:
        expected = weigh(checkpoint).checkpoint_bytes
        found.append(
            Finding(
                "warning",
                "weights-disagree",
                f"The files hold {checkpoint.weight_bytes / 2**30:.1f} GiB, "
                f"the config lets expect {expected / 2**30:.1f} GiB.",
                "A repo may hold its weights twice (original/, metal/, *.bin beside *.safetensors), "
                "or the files are not those of this config. Memory is planned with the files' size.",
                "Count only the safetensors of the index (model.weight_bytes), or check config.json.",
                "model.weight_bytes",
            )
        )
    return tuple(found)


def _bounds(checkpoint: Checkpoint) -> Finding:
    """Where the size of an unknown architecture lies: two matrices a feed-forward block, or three."""
    most = weigh(checkpoint).parameters
    gates = 0
    for index, kind in enumerate(checkpoint.kinds):
        if kind.mlp != "none":
            rows, _missing_here = tensors(checkpoint.row["mlps"].get(kind.mlp, ()), checkpoint.dimensions(index), True)
            gates += sum(tensor.elements for tensor in rows if tensor.name.endswith("gate_proj"))
    return Finding(
        "warning",
        "parameters-estimated",
        f"Between {(most - gates) / 1e9:.2f} and {most * 1.05 / 1e9:.2f} billion parameters; "
        f"{most / 1e9:.2f} are planned with.",
        "The architecture is unknown: its feed-forward blocks have two or three matrices, "
        "and it may have parts that its config does not name.",
        "Give model.weight_bytes (the sum of the safetensors): then memory follows the files.",
        "config.json",
    )


# Sizes of known checkpoints lie closer to the config's than this, unlisted 4-bit exceptions included.
_SUSPICIOUS = 0.10

__all__ = [
    "ActiveBytes",
    "Part",
    "Weights",
    "active_weight_bytes",
    "file_ratio",
    "loaded_bytes",
    "split_layers",
    "stage_weights",
    "weigh",
    "weight_findings",
]
