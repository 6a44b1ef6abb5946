# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parameters of vision and audio towers beside a language model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from .blocks import Dimensions, expression
from .findings import Finding
from .knowledge import knowledge

_CONFIGS = (
    "vision_config",
    "vit_config",
    "visual",
    "vision_tower_config",
    "vision_encoder",
    "siglip_config",
    "audio_config",
    "sound_config",
    "speech_config",
)
_NAMES = ("mm_vision_tower", "vision_tower", "vision_tower_name", "mm_audio_tower")


@cache
def _row(name: str) -> dict[str, Any]:
    row = knowledge("towers")["rows"][name]
    if "like" not in row:
        return dict(row)
    base = _row(row["like"])
    return {**base, **row, "set": {**base.get("set", {}), **row.get("set", {})}}


def _finding(what: str) -> Finding:
    return Finding(
        "note",
        "tower-estimated",
        what,
        "The config says too little about it; towers are small beside the text model.",
        "Give model.weight_bytes (the sum of the safetensors) where it matters.",
        "config.json",
    )


def _size(key: str, tower: Mapping[str, Any], outer: str, text_width: int) -> tuple[int, bool]:
    """Parameters of one tower, and whether they are a guess."""
    table = knowledge("towers")
    inner = str(tower.get("model_type") or "")
    sees = not key.startswith(("audio", "sound", "speech", "siglip"))
    names = (outer if sees else "", inner, inner.removesuffix("_vision"))
    name = next((name for name in names if name in table["rows"]), None)
    row = _row(name) if name else table["generic"]
    numbers = {**tower, "text_width": text_width}
    numbers.update({f"{own}_count": len(value) for own, value in tower.items() if isinstance(value, list)})
    dimensions = Dimensions(numbers, {**table["set"], **row.get("set", {})})
    value = dimensions.value(expression(row["parameters"]))
    exact = value is not None and name is not None
    if value is None and name:
        value = dimensions.value(expression(table["generic"]["parameters"]))
    return max(int(value or 0), 0), not exact


def tower_parameters(config: Mapping[str, Any], text_width: int) -> tuple[int, tuple[Finding, ...]]:
    """Parameters of all towers and projectors that config.json describes, and what had to be guessed."""
    total = 0
    findings: list[Finding] = []
    rows = knowledge("towers")["rows"]
    outer = str(config.get("model_type") or "")
    thinker = config.get("thinker_config")
    places = [config, thinker] if isinstance(thinker, Mapping) else [config]
    towers = [(key, place[key]) for place in places for key in _CONFIGS if isinstance(place.get(key), Mapping)]
    absent = _row(outer).get("absent") if outer in rows else None
    if absent and not towers:
        towers = [("vision_config", absent)]
        findings.append(_finding(f"config.json has no vision_config; the usual tower of {outer} is counted."))
    for key, tower in towers:
        if not tower:
            continue
        size, guessed = _size(key, tower, outer, text_width)
        total += size
        if guessed:
            findings.append(_finding(f"The size of the {key.removesuffix('_config')} tower is an estimate."))
    if not total and outer in knowledge("towers")["fixed"]:
        total = knowledge("towers")["fixed"][outer] * 1_000_000
    for key in _NAMES:
        named = config.get(key)
        if isinstance(named, str) and named:
            known = knowledge("towers")["named"]
            described = isinstance(config.get("siglip_config"), Mapping)
            for part in named.lower().split(","):
                size = next((known[word] for word in known if word in part), 0)
                total += 0 if described and "siglip" in part else size * 1_000_000
            findings.append(_finding(f"The towers {named} are counted by their names."))
            break
    return total, tuple(findings)
