# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parameters and bytes of a checkpoint, by part, by layer and by pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .checkpoint import Checkpoint, InputError


@dataclass(frozen=True)
class Weights:
    """What a checkpoint holds. ``parameters`` is the text model without multi-token-prediction layers.

    ``layer_bytes`` has one entry a decoder layer; ``embedding_bytes``, ``head_bytes`` (0 when tied), ``norm_bytes``,
    ``vision_bytes`` (towers and projectors) and ``mtp_bytes`` are the rest; ``checkpoint_bytes`` is what lies on disk.
    """

    parameters: int
    active_parameters: int
    mtp_parameters: int
    vision_parameters: int
    embedding_parameters: int
    layer_bytes: tuple[int, ...]
    embedding_bytes: int
    head_bytes: int
    norm_bytes: int
    vision_bytes: int
    mtp_bytes: int
    checkpoint_bytes: int


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


def weigh(checkpoint: Checkpoint) -> Weights:
    """Parameters and bytes of ``checkpoint``."""
    raise NotImplementedError


def stage_weights(
    checkpoint: Checkpoint, pipeline: int, tensor: int = 1, partition: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Bytes of weights on each node, stage by stage (``pipeline * tensor`` entries)."""
    raise NotImplementedError


def active_weight_bytes(checkpoint: Checkpoint) -> ActiveBytes:
    """Bytes of weights read for each decoded token at batch 1."""
    raise NotImplementedError
