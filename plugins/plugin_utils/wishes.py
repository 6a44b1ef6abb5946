# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the user asks for: read once, checked once, then frozen.

Every wish is optional; ``None`` means "decide for me". Numbers may come as strings, since ``-e`` hands
strings over. A wish that is unknown, out of range or at odds with another raises ``InputError`` naming it.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checkpoint import InputError
from .versions import version

PLACEMENTS = ("single", "pipeline", "tensor")
LAUNCHERS = ("ray", "mp")

_TIB = 1 << 40
# vLLM's own suffixes: small letters count in thousands, capitals in 1024 (utils/argparse_utils.py, 0.33).
_SUFFIX = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": _TIB,
}
_INTEGER = re.compile(r"(-?\d+(?:\.\d+)?)([kmgtKMGT]?)")
_REPO_OR_NAME = re.compile(r"[A-Za-z0-9][\w./:@+-]*")
_IMAGE = re.compile(r"[a-z0-9][\w.:/-]*(?:@sha256:[0-9a-f]{64})?")
_PARSER = re.compile(r"[A-Za-z0-9][\w.-]*")
_ENV_NAME = re.compile(r"[A-Za-z_]\w*")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Speculative:
    """Speculative decoding: ``method`` as vLLM names it, tokens proposed a step, bytes of the draft."""

    method: str
    num_tokens: int
    draft_weight_bytes: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """The wishes of the plan filter; sizes in bytes, utilization as a share of total memory."""

    context: int | None = None
    concurrency: int | None = None
    placement: str | None = None
    launcher: str | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str | None = None
    image: str | None = None
    vllm_version: str | None = None
    reserve_bytes: int | None = None
    footprint_limit_bytes: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    speculative: Speculative | None = None
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    extra_args: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    served_model_name: str | None = None
    api_port: int | None = None
    trust_remote_code: bool | None = None


def _integer(low: int, high: int, unit: str) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        expected = f"expected a whole number of {unit} from {low} to {high}, got {value!r}"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InputError(name, expected)
        match = _INTEGER.fullmatch(str(value).strip())
        number = float(match[1]) * _SUFFIX[match[2]] if match else math.nan
        if isinstance(value, float):
            number = value
        if not (math.isfinite(number) and low <= number <= high and number == int(number)):
            raise InputError(name, expected)
        return int(number)

    return read


def _share(name: str, value: Any) -> float:
    expected = f"expected a share of total memory above 0 and up to 1, as 0.85; got {value!r}"
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise InputError(name, expected) from None
    if not 0 < number <= 1:
        raise InputError(name, expected)
    return number


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise InputError(name, f"expected true or false, got {value!r}")


def _one_of(words: Sequence[str]) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise InputError(name, f"expected one of {', '.join(words)}; got {value!r}")
        return str(value)

    return read


def _word(pattern: re.Pattern[str], what: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if not isinstance(value, str) or pattern.fullmatch(value.strip()) is None:
            raise InputError(name, f"expected {what}, got {value!r}")
        return str(value).strip()

    return read


def _vllm_version(name: str, value: Any) -> str:
    # YAML turns 0.25 into a number; 0.30 would turn into 0.3, so a bare number is refused.
    expected = f"expected a vLLM version as a string, such as '0.25.1'; got {value!r}"
    if not isinstance(value, str):
        raise InputError(name, expected)
    try:
        numbers = version(value)
    except ValueError:
        raise InputError(name, expected) from None
    return ".".join(map(str, numbers))


def _arguments(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise InputError(name, f"expected arguments as a list or one shell-quoted line: {error}") from None
    if not isinstance(value, Sequence) or not all(isinstance(item, str | int | float) for item in value):
        raise InputError(name, f"expected a list of strings, got {value!r}")
    return tuple(str(item) for item in value)


def _environment(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(name, f"expected a mapping of variable to value, got {value!r}")
    for key, item in value.items():
        if not isinstance(key, str) or _ENV_NAME.fullmatch(key) is None:
            raise InputError(name, f"expected names of environment variables, got {key!r}")
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise InputError(name, f"expected a string or a number for {key}, got {item!r}")
    return {str(key): str(item) for key, item in value.items()}


_SPECULATIVE: Mapping[str, Callable[[str, Any], Any]] = {
    "method": _word(_PARSER, "a speculative method as vLLM names it, such as mtp, eagle3 or ngram"),
    "num_tokens": _integer(1, 64, "tokens proposed a step"),
    "draft_weight_bytes": _integer(0, _TIB, "bytes"),
    "model": _word(_REPO_OR_NAME, "the repository or path of the draft model"),
}


def _speculative(name: str, value: Any) -> Speculative:
    if not isinstance(value, Mapping):
        raise InputError(name, f"expected a mapping with method and num_tokens, got {value!r}")
    for key in value:
        if key not in _SPECULATIVE:
            raise InputError(name, f"{key!r} is unknown; expected {', '.join(_SPECULATIVE)}")
    for key in ("method", "num_tokens"):
        if value.get(key) is None:
            raise InputError(name, f"{key} is missing; expected a mapping with method and num_tokens")
    return Speculative(
        **{key: _SPECULATIVE[key](f"{name}.{key}", item) for key, item in value.items() if item is not None}
    )


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "context": _integer(1, 1 << 27, "tokens"),
    "concurrency": _integer(1, 65536, "requests"),
    "placement": _one_of(PLACEMENTS),
    "launcher": _one_of(LAUNCHERS),
    "gpu_memory_utilization": _share,
    "kv_cache_memory_bytes": _integer(1, _TIB, "bytes a node"),
    "kv_cache_dtype": _word(_PARSER, "a KV cache type as vLLM names it, such as auto or fp8"),
    "image": _word(_IMAGE, "an image reference such as vllm/vllm-openai:v0.33.0"),
    "vllm_version": _vllm_version,
    "reserve_bytes": _integer(0, _TIB, "bytes"),
    "footprint_limit_bytes": _integer(1, _TIB, "bytes a node"),
    "max_num_batched_tokens": _integer(1, 1 << 24, "tokens"),
    "max_num_seqs": _integer(1, 65536, "requests"),
    "prefix_caching": _flag,
    "speculative": _speculative,
    "reasoning_parser": _word(_PARSER, "a reasoning parser as vLLM names it, or none"),
    "tool_call_parser": _word(_PARSER, "a tool parser as vLLM names it, or none"),
    "extra_args": _arguments,
    "extra_env": _environment,
    "served_model_name": _word(_REPO_OR_NAME, "a name for the API, without blanks"),
    "api_port": _integer(1, 65535, "(a TCP port)"),
    "trust_remote_code": _flag,
}


def read_wishes(**wishes: Any) -> Wishes:
    """The wishes, typed. ``InputError`` for unknown names, bad values, and wishes that exclude each other."""
    for name in wishes:
        if name not in _READERS:
            near = difflib.get_close_matches(name, _READERS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(_READERS)}"
            raise InputError(name, f"no such wish; {hint}")
    read = Wishes(**{name: _READERS[name](name, value) for name, value in wishes.items() if value is not None})
    _check_together(read)
    return read


def _check_together(wishes: Wishes) -> None:
    seqs, batched = wishes.max_num_seqs, wishes.max_num_batched_tokens
    if seqs is not None and wishes.concurrency is not None and wishes.concurrency > seqs:
        raise InputError("max_num_seqs", f"expected at least the asked concurrency {wishes.concurrency}, got {seqs}")
    # SchedulerConfig refuses fewer batched tokens than sequences (config/scheduler.py, 0.33).
    most = seqs or wishes.concurrency
    if batched is not None and most is not None and batched < most:
        raise InputError("max_num_batched_tokens", f"expected at least {most}, one token a request; got {batched}")
    if wishes.placement == "single" and wishes.launcher == "ray":
        raise InputError("launcher", "expected none or mp with placement single: ray joins nodes, and there is one")
