# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How fast a plan decodes: bytes read for a token against the memory's bandwidth, with measured efficiencies.

A single stream is bound by reading the weights that a token touches. The time of a token is modelled as

    quantized / (bandwidth x efficiency(format)) + unquantized / (bandwidth x efficiency(16 bit))
    + KV read / (bandwidth x efficiency(KV)) + blocks x time(kind of block) + what the nodes say to each other

with efficiencies and times from ``knowledge/speed.yml``, fitted to the published measurements kept there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .knowledge import knowledge


@dataclass(frozen=True, slots=True)
class Decoding:
    """What one token of one request costs, before it is spread over nodes.

    ``format`` is how the quantized weights are stored (``none``, ``fp8``, ``nvfp4``, ``mxfp4``, ``int4``).
    ``blocks`` counts residual blocks by kind (``attention``, ``mlp``, ``moe``, ``recurrent``), two in a usual
    layer. ``kv_bytes_per_token`` grows with the context; ``kv_fixed_bytes`` (windows, states) does not.
    """

    quantized_bytes: int
    unquantized_bytes: int
    format: str
    blocks: Mapping[str, int]
    kv_bytes_per_token: int = 0
    kv_fixed_bytes: int = 0

    def kv_read_bytes(self, depth_tokens: int) -> int:
        """KV and state read for a token that follows ``depth_tokens`` others."""
        return self.kv_bytes_per_token * depth_tokens + self.kv_fixed_bytes

    def bytes_per_token(self, depth_tokens: int) -> int:
        """All bytes read for a token."""
        return self.quantized_bytes + self.unquantized_bytes + self.kv_read_bytes(depth_tokens)


@dataclass(frozen=True, slots=True)
class Speed:
    """Expected tokens per second of one stream, its range, and the bound no software beats."""

    low: float
    expected: float
    high: float
    roofline: float
    bytes_per_token: int
    bound_by: str
    depth_tokens: int

    def rates(self) -> dict[str, float]:
        """The range, as anybody can promise it."""
        return {
            "low": _rounded(self.low),
            "expected": _rounded(self.expected),
            "high": _rounded(self.high),
        }

    def as_dict(self) -> dict[str, Any]:
        """The contract's ``speed`` keys, with the depth they hold at."""
        return {
            "decode_tokens_per_second": self.rates(),
            "roofline_tokens_per_second": _rounded(self.roofline),
            "bytes_per_token": self.bytes_per_token,
            "bound_by": self.bound_by,
            "depth_tokens": self.depth_tokens,
        }


def _rounded(value: float) -> float:
    """Three figures are more than anybody can promise."""
    return float(f"{value:.3g}")


@cache
def _model() -> Mapping[str, Any]:
    data: Mapping[str, Any] = knowledge("speed")["model"]
    return data


def usual_depth() -> int:
    """Tokens of conversation for which published figures hold."""
    return int(_model()["depth_tokens"]["value"])


def _row(table: Mapping[str, Any], name: str) -> Any:
    return table.get(name, table["other"])


def decode_speed(
    decoding: Decoding,
    bandwidth_gb_s: float,
    pipeline: int = 1,
    tensor: int = 1,
    depth_tokens: int | None = None,
    enforce_eager: bool = False,
    speculative_tokens: int = 0,
) -> Speed:
    """Tokens per second of one stream on ``pipeline`` x ``tensor`` nodes; ``bandwidth_gb_s`` is 10^9 bytes.

    Pipeline stages work one after the other, so more of them add hops and nothing else; tensor parallel
    divides the reading and adds a reduction to every block. ``speculative_tokens`` are proposed a step; how
    many are accepted depends on the text.
    """
    model = _model()
    depth = usual_depth() if depth_tokens is None else depth_tokens
    rows = _row(model["formats"], decoding.format)
    bandwidth = bandwidth_gb_s * 1e9
    reading = (
        decoding.quantized_bytes / rows["efficiency"]
        + decoding.unquantized_bytes / model["formats"]["none"]["efficiency"]
        + decoding.kv_read_bytes(depth) / model["kv"]["efficiency"]
    ) / (bandwidth * tensor)
    times = model["block_seconds"]
    eager = times["eager"] if enforce_eager else 0.0
    computing = sum(count * (_row(times, kind) + eager) for kind, count in decoding.blocks.items())
    talking = (pipeline - 1) * model["nodes"]["stage_hop_seconds"]
    if tensor > 1:
        talking += sum(decoding.blocks.values()) * model["nodes"]["reduction_seconds"]
    accepted = model["speculative"]["factor"] if speculative_tokens else 1.0
    expected = accepted / (reading + computing + talking)
    spread = _row(model["spread"], "multi" if pipeline * tensor > 1 else decoding.format)
    total = decoding.bytes_per_token(depth)
    roofline = bandwidth * tensor / total * (1 + speculative_tokens)
    largest = max((reading, "memory bandwidth"), (computing, "launches"), (talking, "the link"))
    return Speed(
        low=expected * spread["low"],
        expected=expected,
        high=expected * spread["high"],
        roofline=roofline,
        bytes_per_token=total,
        bound_by=largest[1],
        depth_tokens=depth,
    )
