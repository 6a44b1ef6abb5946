# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a checkpoint's weights are stored: the method, the bits of each module, and what stays unquantized."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from typing import Any

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)(?=\.|\*|$)")


@dataclass(frozen=True)
class Scheme:
    """How one kind of module is stored. ``bits`` is the element alone, ``scale_bits`` its scales, per weight."""

    bits: float = 16.0
    scale_bits: float = 0.0

    @property
    def stored_bits(self) -> float:
        """Bits a weight takes in the file, scales included."""
        return self.bits + self.scale_bits


@dataclass(frozen=True)
class Quantization:
    """What ``quantization_config`` or ``hf_quant_config.json`` says.

    ``method`` is vLLM's name (``none``, ``fp8``, ``fbgemm_fp8``, ``compressed-tensors``, ``modelopt``, ``mxfp4``,
    ``awq``, ``gptq``, ``bitsandbytes``, ``auto-round`` ...), ``algo`` the algorithm (``FP8``, ``NVFP4``,
    ``MIXED_PRECISION``, ``W4A16`` ...), ``format`` the short name people use (``fp8``, ``nvfp4``, ``int4`` ...).
    ``unquantized`` are the module patterns the file leaves in the checkpoint's own dtype.
    """

    method: str = "none"
    algo: str | None = None
    format: str = "none"
    scheme: Scheme = field(default_factory=Scheme)
    unquantized: tuple[str, ...] = ()
    kv_cache: str | None = None

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a quantized weight, scales included; 16 where nothing is quantized."""
        return self.scheme.stored_bits
