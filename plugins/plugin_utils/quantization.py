# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a checkpoint's weights are stored: method, format of each module, what stays unquantized."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any

from .knowledge import knowledge

# A layer's number in a module's name, and what comes after it.
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+|\*)(?:\.(.*)|(\*?))$")
# Layers that are not the text model's: towers, and layers that predict further tokens.
_TOWER = re.compile(r"vision|visual|audio|tower|\bvit\b|speech|image")
_LITERAL_DIGIT = re.compile(r"layers\\?\.\(?\[?\??:?\d")


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a module's weight is stored: bits of an element, and its scales.

    ``per`` is what one scale belongs to: ``none``, ``tensor``, ``row``, ``group`` (of ``size`` columns) or
    ``block`` (``size`` by ``size``); ``scale_bytes`` includes zero points.
    """

    format: str
    bits: float
    per: str = "none"
    size: int = 0
    scale_bytes: float = 0.0
    extra_column_bytes: int = 0

    @property
    def stored_bits(self) -> float:
        """Bits a weight takes in the file, group or block scales included."""
        if self.per == "group" and self.size:
            return self.bits + 8 * self.scale_bytes / self.size
        if self.per == "block" and self.size:
            return self.bits + 8 * self.scale_bytes / self.size**2
        return self.bits

    def stored_bytes(self, rows: int, columns: int) -> float:
        """Bytes of a ``rows`` by ``columns`` weight with its scales."""
        scales: float = 0
        if self.per == "tensor":
            scales = 1
        elif self.per == "row":
            scales = rows
        elif self.per == "group":
            scales = rows * (-(-columns // self.size) if self.size > 0 else 1)
        elif self.per == "block":
            scales = -(-rows // self.size) * -(-columns // self.size)
        return rows * columns * self.bits / 8 + scales * self.scale_bytes + self.extra_column_bytes * columns


UNQUANTIZED = Scheme("none", 16.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules by name, and how they are stored. ``layer`` None: in every layer, or outside the layers.

    ``kind`` is ``path`` (the module or what lies in it), ``glob``, ``part`` (a piece of the name) or
    ``regex`` (on the whole name; ``name`` then is the pattern).
    """

    layer: int | None
    kind: str
    name: str
    scheme: Scheme

    def matches(self, tensor: str, layer: int | None) -> bool:
        """Whether the rule speaks of ``tensor`` (its name within the layer, or outside the layers)."""
        if self.kind == "path":
            return tensor == self.name or tensor.startswith(f"{self.name}.")
        if self.kind == "glob":
            return fnmatchcase(tensor, self.name)
        if self.kind == "part":
            return f".{self.name}." in f".{tensor}."
        full = _full_name(tensor, layer)
        return any(_compiled(self.name).match(name) is not None for name in full)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error:
        return re.compile(re.escape(pattern))


def _full_name(tensor: str, layer: int | None) -> tuple[str, ...]:
    if layer is None:
        return (tensor, f"model.{tensor}", f"language_model.{tensor}")
    tail = f"layers.{layer}.{tensor}"
    return (f"model.{tail}", f"model.language_model.{tail}", f"language_model.model.{tail}", tail)


@lru_cache(maxsize=8192)
def _rule(pattern: str, scheme: Scheme) -> Rule:
    """A module name or pattern, as the files write them, as a rule."""
    if pattern.startswith("re:"):
        return Rule(None, "regex", pattern[3:], scheme)
    found = _LAYER.search(pattern)
    if found is None:
        if "*" in pattern:
            return (
                Rule(None, "glob", pattern, scheme)
                if pattern.startswith("*")
                else Rule(None, "part", pattern.strip("*."), scheme)
            )
        return Rule(None, "part", pattern.removeprefix("model."), scheme)
    number, rest, star = found.groups()
    before = pattern[: found.start()]
    if "mtp" in before:
        return Rule(None, "glob", f"mtp.{rest or '*'}", scheme)
    if _TOWER.search(before):
        return Rule(None, "part", pattern.strip("*."), scheme)
    layer = None if number == "*" else int(number)
    if star == "*" and layer is not None:  # "layers.1*" is also layers 10 to 19, read as the files mean it: layer 1
        return Rule(layer, "glob", "*", scheme)
    name = rest or "*"
    if name.endswith("*") and "*" not in name[:-1] and name != "*":
        return Rule(layer, "glob", name, scheme)
    return Rule(layer, "glob" if "*" in name else "path", name, scheme)


@dataclass(frozen=True)
class Quantization:
    """What ``quantization_config`` or ``hf_quant_config.json`` says.

    ``method`` is the file's quant_method (``none``, ``fp8``, ``compressed-tensors``, ``modelopt``,
    ``mxfp4``, ``awq``, ``gptq``, ``bitsandbytes`` ...), ``algo`` its algorithm where it names one
    (``NVFP4``, ``MIXED_PRECISION``, ``float-quantized`` ...), ``format`` the short name people use
    (``fp8``, ``nvfp4``, ``mxfp4``, ``int4``, ``mixed`` ...). ``unquantized`` are the modules the file
    leaves alone, as it writes them. ``kv_cache`` is ``fp8`` or ``nvfp4`` when the file brings scales for
    the cache.
    """

    method: str = "none"
    algo: str | None = None
    format: str = "none"
    scheme: Scheme = UNQUANTIZED
    unquantized: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    kv_cache: str | None = None
    bulk: Scheme | None = None
    experts_only: bool = False
    head: bool = False
    listed_only: bool = False
    activation_bits: int | None = None
    known: bool = True

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a quantized weight with its scales (of an expert where those differ); else 16."""
        return (self.bulk or self.scheme).stored_bits

    @cached_property
    def general_rules(self) -> tuple[Rule, ...]:
        """The rules that hold in every layer, or outside the layers."""
        return tuple(rule for rule in self.rules if rule.layer is None)

    @cached_property
    def single_rules(self) -> Mapping[int, tuple[Rule, ...]]:
        """The rules of single layers; layers with the same exceptions share one tuple."""
        single: dict[int, list[Rule]] = {}
        for rule in self.rules:
            if rule.layer is not None:
                single.setdefault(rule.layer, []).append(rule)
        shared: dict[frozenset[tuple[str, int]], tuple[Rule, ...]] = {}
        return {
            layer: shared.setdefault(frozenset((rule.name, id(rule.scheme)) for rule in own), tuple(own))
            for layer, own in single.items()
        }

    def scheme_of(self, tensor: str, layer: int | None = None) -> Scheme:
        """How ``tensor`` is stored: its name within layer ``layer``, or outside the layers."""
        own = self.single_rules.get(layer, ()) if layer is not None else ()
        return self.choose(tensor, (*own, *self.general_rules), layer)

    def choose(self, tensor: str, rules: Iterable[Rule], layer: int | None) -> Scheme:
        """How ``tensor`` is stored under these rules."""
        for rule in rules:
            if rule.matches(tensor, layer):
                return rule.scheme
        if self.listed_only or (self.experts_only and "experts" not in tensor):
            return UNQUANTIZED
        return self.scheme


def needs_layer(rule: Rule) -> bool:
    """Whether a rule for all layers may still tell them apart (a regular expression with a number)."""
    return rule.kind == "regex" and _LITERAL_DIGIT.search(rule.name) is not None


@lru_cache(maxsize=256)
def _scheme(format: str, bits: float | None = None, size: int | None = None, per: str | None = None) -> Scheme:
    row = knowledge("quantization")["formats"][format]
    if size is not None and size <= 0:  # one group over all columns
        per, size = "row", None
    return Scheme(
        format=knowledge("quantization")["names"].get(format, format),
        bits=bits or row["bits"],
        per=per or row.get("per", "none"),
        size=size or row.get("size", 0),
        scale_bytes=row.get("bytes", 0),
        extra_column_bytes=row.get("extra_column_bytes", 0),
    )


def _count(value: Any) -> int | None:
    """A group size or a number of bits, where it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(config: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _of_weights(weights: Mapping[str, Any], format: str | None) -> Scheme:
    """The scheme of a compressed-tensors or Quark ``weights`` entry."""
    bits = _count(weights.get("num_bits")) or 8
    floating = weights.get("type") == "float" or "fp" in str(weights.get("dtype", ""))
    group = _count(weights.get("group_size"))
    strategy = str(weights.get("strategy") or weights.get("qscheme") or ("group" if group else "tensor"))
    if floating and bits == 4:
        fp4 = (
            "mxfp4" if "mx" in str(format) or (group == 32 and "uint8" in str(weights.get("scale_dtype"))) else "nvfp4"
        )
        return _scheme(fp4, size=group or None)
    if floating and "mx" in str(format):
        return _scheme("mxfp8")
    if floating:
        kind = {"block": "fp8_block", "tensor": "fp8_tensor", "per_tensor": "fp8_tensor"}.get(strategy, "fp8")
        return _scheme(kind)
    if group and group > 0:
        return _scheme("int4" if weights.get("symmetric", True) else "int4_zeros", bits=bits, size=group)
    return replace(_scheme("int8"), bits=bits, format=f"int{bits}")


def _compressed(config: Mapping[str, Any], skipped: tuple[str, ...]) -> Quantization:
    overall = config.get("format")
    groups = [
        group for name, group in _entries(config.get("config_groups")) if isinstance(group.get("weights"), Mapping)
    ]
    rules = [_rule(pattern, UNQUANTIZED) for pattern in skipped if not _is_class(pattern)]
    main: Scheme | None = None
    schemes: list[Scheme] = []
    activation = None
    for group in groups:
        scheme = _of_weights(group["weights"], group.get("format") or overall)
        schemes.append(scheme)
        inputs = group.get("input_activations")
        activation = activation or (_count(inputs.get("num_bits")) if isinstance(inputs, Mapping) else None)
        for target in _patterns(group.get("targets")):
            if _is_class(target):
                main = main or scheme
            else:
                rules.append(_rule(target, scheme))
    if not schemes:
        return Quantization("compressed-tensors", known=False, unquantized=skipped)
    largest = main or schemes[0]
    names = {scheme.format for scheme in schemes}
    return Quantization(
        method="compressed-tensors",
        algo=str(overall) if overall else None,
        format=largest.format if len(names) == 1 else "mixed",
        scheme=largest,
        unquantized=skipped,
        rules=tuple(rules),
        bulk=_most(rules),
        listed_only=main is None,
        activation_bits=activation,
    )


def _is_class(target: str) -> bool:
    """Whether a target is a module class (``Linear``), not a module's name."""
    return target[:1].isupper() and "." not in target and not target.startswith("re:")


def _modelopt(config: Mapping[str, Any], skipped: tuple[str, ...]) -> Quantization:
    table = knowledge("quantization")["modelopt"]
    algo = str(config.get("quant_algo") or "FP8").upper()
    size = _count(config.get("group_size"))
    rules = [_rule(pattern, UNQUANTIZED) for pattern in skipped]
    listed = config.get("quantized_layers")
    scheme = _scheme(table.get(algo, "fp8_tensor"), size=size if table.get(algo) in ("nvfp4", "int4") else None)
    names = set()
    if isinstance(listed, Mapping):
        for module, settings in listed.items():
            settings = settings if isinstance(settings, Mapping) else {}
            own = str(settings.get("quant_algo") or algo).upper()
            group = _count(settings.get("group_size"))
            kind = table.get(own, "fp8_tensor")
            rules.append(_rule(str(module), _scheme(kind, size=group if kind in ("nvfp4", "int4") else None)))
            names.add(rules[-1].scheme.format)
    else:
        names.add(scheme.format)
    return Quantization(
        method="modelopt",
        algo=algo,
        format="mixed" if len(names) > 1 or algo == "MIXED_PRECISION" else scheme.format,
        scheme=scheme,
        unquantized=skipped,
        rules=tuple(rules),
        bulk=_most(rules) if isinstance(listed, Mapping) else None,
        listed_only=isinstance(listed, Mapping),
        known=algo in table,
    )


def _quark(config: Mapping[str, Any], skipped: tuple[str, ...]) -> Quantization:
    def scheme(entry: Any) -> Scheme:
        weight = (entry or {}).get("weight") if isinstance(entry, Mapping) else None
        if isinstance(weight, list):
            weight = weight[0] if weight else None
        if not isinstance(weight, Mapping):
            return UNQUANTIZED
        dtype = str(weight.get("dtype", ""))
        bits = {"fp4": 4, "mxfp4": 4, "int4": 4, "uint4": 4, "mxfp6_e2m3": 6, "mxfp6_e3m2": 6}.get(dtype, 8)
        if bits == 6:
            return _scheme("mxfp6")
        entry = {"num_bits": bits, "type": "int" if "int" in dtype else "float", "dtype": dtype}
        per = str(weight.get("qscheme", ""))
        group = _count(weight.get("group_size")) if "group" in per else None
        kind = "mx" if bits == 4 and "int" not in dtype else None
        return _of_weights({**entry, "group_size": group, "strategy": per.removeprefix("per_")}, kind)

    main = scheme(config.get("global_quant_config"))
    own = {name: scheme(entry) for name, entry in _entries(config.get("layer_quant_config"))}
    rules = [_rule(pattern, UNQUANTIZED) for pattern in skipped]
    rules += [_rule(name, entry) for name, entry in own.items()]
    return Quantization("quark", main.format, main.format, main, skipped, tuple(rules))


def _bitsandbytes(config: Mapping[str, Any]) -> Scheme:
    return _scheme("nf4" if config.get("load_in_4bit") or config.get("_load_in_4bit") else "bnb_int8")


def _named_format(text: str) -> str:
    """The format that a free name speaks of (TorchAO's type names)."""
    lowered = text.lower()
    for word, format in (
        ("mxfp4", "mxfp4"),
        ("nvfp4", "nvfp4"),
        ("int4", "int4"),
        ("uint4", "int4"),
        ("float8", "fp8"),
        ("fp8", "fp8"),
    ):
        if word in lowered:
            return format
    return "int8"


def _entries(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """A mapping of names to settings, whatever the file holds."""
    if not isinstance(value, Mapping):
        return []
    return [(str(name), settings if isinstance(settings, Mapping) else {}) for name, settings in value.items()]


def _own_bits(config: Mapping[str, Any], base: str) -> list[Rule]:
    """Modules with settings of their own: AutoRound's extra_config, GPTQModel's dynamic."""
    rules = []
    for module, settings in _entries(config.get("extra_config")):
        bits = _count(settings.get("bits"))
        if bits:
            pattern = str(module)
            rule = f"re:{pattern}" if any(mark in pattern for mark in ("\\", ".*", "(", "^")) else pattern
            group = _count(settings.get("group_size"))
            rules.append(_rule(rule, UNQUANTIZED if bits >= 16 else _scheme(base, bits=bits, size=group)))
    for module, settings in _entries(config.get("dynamic")):
        sign, _colon, pattern = str(module).partition(":")
        bits = _count(settings.get("bits"))
        if sign == "-":
            rules.append(_rule(f"re:{pattern}", UNQUANTIZED))
        elif bits:
            rules.append(_rule(f"re:{pattern if sign == '+' else module}", _scheme(base, bits=bits)))
    return rules


def _flatten(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """hf_quant_config.json keeps its settings one level down."""
    inner = config.get("quantization")
    return {**config, **inner} if isinstance(inner, Mapping) else config


def _kv_cache(config: Mapping[str, Any]) -> str | None:
    named = config.get("kv_cache_quant_algo") or config.get("kv_cache_scheme")
    if isinstance(named, Mapping):
        bits, kind = named.get("num_bits"), str(named.get("type", "float"))
        return ("nvfp4" if bits == 4 else "fp8") if kind == "float" else f"int{bits}"
    lowered = str(named or "").lower()
    return next((dtype for dtype in ("nvfp4", "fp8", "int8", "int4") if lowered.startswith(dtype)), None)


def with_family(quantization: Quantization, row: Mapping[str, Any], text: Mapping[str, Any]) -> Quantization:
    """With what the family's row of models.yml knows of tensors that the file's own config passes over."""
    found: list[Rule] = []
    bulk = quantization.bulk
    for entry in row.get("quantized", ()):
        if any(text.get(key) != value for key, value in entry.get("where", {}).items()):
            continue
        unlisted = entry.get("unlisted")
        if unlisted and (quantization.format != unlisted or quantization.rules):
            continue
        scheme = UNQUANTIZED if entry["format"] == "none" else _scheme(entry["format"])
        found += [Rule(None, "glob", name, scheme) for name in entry["tensors"]]
        if any("experts" in name for name in entry["tensors"]):
            bulk = scheme
    if not found:
        return quantization
    other = bulk is not None and bulk.format != quantization.scheme.format
    return replace(
        quantization,
        rules=(*found, *quantization.rules),
        bulk=bulk,
        format="mixed" if other else quantization.format,
    )


def _most(rules: Sequence[Rule]) -> Scheme | None:
    """The scheme of the bulk of the weights: the experts', else the one that most modules have."""
    schemes = [rule.scheme for rule in rules if rule.scheme is not UNQUANTIZED]
    experts = [rule.scheme for rule in rules if rule.scheme is not UNQUANTIZED and "experts" in rule.name]
    chosen = experts or schemes
    return max(chosen, key=chosen.count) if chosen else None


def read_quantization(config: Mapping[str, Any] | None, quant_config: Mapping[str, Any] | None = None) -> Quantization:
    """What ``quantization_config`` and ``hf_quant_config.json`` say; each fills in what the other lacks."""
    said: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    beside = _flatten(quant_config) if isinstance(quant_config, Mapping) else {}
    merged = {
        **beside,
        **said,
        **{key: value for key, value in beside.items() if said.get(key) in (None, [], {})},
    }
    merged = dict(_flatten(merged))
    if not merged:
        return Quantization()
    methods = knowledge("quantization")["methods"]
    method = str(merged.get("quant_method") or "").lower()
    if not method and (merged.get("quant_algo") or merged.get("producer")):
        method = "modelopt"
    if not method and merged.get("config_groups"):
        method = "compressed-tensors"
    if not method and ("bits" in merged or "w_bit" in merged):
        method = "gptq"
    if method in ("none", "") and not merged.get("quant_algo"):
        return Quantization()
    row = methods.get(method)
    skip_keys = row["skip"] if row else ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
    skipped = tuple(pattern for key in skip_keys for pattern in _patterns(merged.get(key)))
    kv_cache = _kv_cache(merged)
    if method.startswith("modelopt") or (method == "" and merged.get("quant_algo")):
        return replace(_modelopt(merged, skipped), kv_cache=kv_cache)
    if method == "compressed-tensors":
        return replace(_compressed(merged, skipped), kv_cache=kv_cache)
    if method == "quark":
        return replace(_quark(merged, skipped), kv_cache=kv_cache)
    base = row["format"] if row else "fp8_tensor"
    bits = _count(_first(merged, (row or {}).get("bits", ("bits", "num_bits", "w_bit"))))
    size = _count(_first(merged, (row or {}).get("group", ("group_size",))))
    block = merged.get("weight_block_size")
    if method == "bitsandbytes":
        scheme = _bitsandbytes(merged)
    elif method == "torchao":
        scheme = _scheme(_named_format(str(merged.get("quant_type"))))
    elif base == "fp8_tensor" and isinstance(block, list) and block and (_count(block[-1]) or 0) > 0:
        scheme = replace(_scheme("fp8_block"), size=block[-1])
    else:
        scheme = _scheme(base, bits=bits if bits and 0 < bits <= 16 else None, size=size)
    if scheme.format == "int4" and scheme.bits != 4:
        scheme = replace(scheme, format=f"int{scheme.bits:g}")
    rules = [*(_rule(pattern, UNQUANTIZED) for pattern in skipped), *_own_bits(merged, base)]
    return Quantization(
        method=method,
        algo=str(merged.get("quant_algo") or merged.get("fmt") or "") or None,
        format=scheme.format,
        scheme=scheme,
        unquantized=skipped,
        rules=tuple(rules),
        kv_cache=kv_cache,
        experts_only=bool(row and row.get("experts_only")),
        head=bool(merged.get("lm_head")),
        known=row is not None,
    )
