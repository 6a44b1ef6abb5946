# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a checkpoint says about itself: small files whole, of its weights only the headers.

Standard library only and Python 3.8, because modules run on nodes.
"""

from __future__ import annotations

import json
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .huggingface import Hub

HEADER_LIMIT_BYTES = 100 << 20  # the limit of the safetensors library itself
FIRST_READ_BYTES = 128 << 10  # holds the whole header of most shards, so one request does
TEXT_LIMIT_BYTES = 4 << 20
_EXPERT = re.compile(r"(?<=\.experts\.)\d+(?=\.)")
_PARSER_NAME = re.compile(r"parser[^/]*\.py$", re.IGNORECASE)


class CheckpointError(Exception):
    """The checkpoint cannot be read; the message names the file and what was expected of it."""


def local_path(model: str) -> str:
    """Where a model named by a path would lie: ``~`` is the home of who runs this."""
    return os.path.expanduser(model)


class Folder:
    """A checkpoint in a directory: given by the user, or a snapshot in the hub's local cache."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.sizes: dict[str, int] = {}
        for root, folders, names in os.walk(path):
            folders[:] = [folder for folder in folders if not folder.startswith(".")]
            for name in names:
                full = os.path.join(root, name)
                self.sizes[os.path.relpath(full, path).replace(os.sep, "/")] = _size(full)

    def read(self, name: str) -> bytes:
        with open(os.path.join(self.path, name), "rb") as stream:
            return stream.read()

    def head(self, name: str, size: int, start: int = 0) -> bytes:
        with open(os.path.join(self.path, name), "rb") as stream:
            stream.seek(start)
            return stream.read(size)


class SingleFile(Folder):
    """A config file alone: nothing is known but what it says."""

    def __init__(self, path: str) -> None:
        self.path = os.path.dirname(path) or "."
        self.name = os.path.basename(path)
        self.sizes = {"config.json": _size(path)}

    def read(self, name: str) -> bytes:
        return super().read(self.name)


class Repository:
    """A checkpoint on the hub at a pinned commit."""

    def __init__(self, hub: Hub, description: dict[str, Any]) -> None:
        self.read = hub.read
        self.head = hub.head
        entries = [entry for entry in description.get("siblings") or [] if entry]
        self.sizes = {str(entry["rfilename"]): _told_size(entry) for entry in entries}


def _told_size(entry: dict[str, Any]) -> int:
    """Bytes of a file as the hub tells them; 0 where it does not."""
    return int(entry.get("size") or (entry.get("lfs") or {}).get("size") or 0)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # a dangling link: the file was listed but never downloaded
        return 0


def weight_files(sizes: dict[str, int], index: dict[str, Any] | None) -> list[str]:
    """The weight files vLLM would load, from all file names of a repository.

    Root folder only; with an index, the files it names; ``consolidated*`` is Mistral's second copy
    (vllm/model_executor/model_loader/weight_utils.py, ``filter_duplicate_safetensors_files``, 0.33).
    """
    root = [name for name in sorted(sizes) if "/" not in name]
    found = [name for name in root if name.endswith(".safetensors")]
    if index:
        named = {str(name) for name in (index.get("weight_map") or {}).values()}
        found = [name for name in found if name in named] or found
    plain = [name for name in found if not name.startswith("consolidated")]
    if plain or found:
        return plain or found
    pickled = [name for name in root if name.endswith((".bin", ".pt"))]
    return [name for name in pickled if not name.startswith(("training", "optimizer"))]


def header_tensors(source: Any, name: str) -> dict[str, int]:
    """Tensor name to bytes, from the header of one safetensors file."""
    head = source.head(name, FIRST_READ_BYTES)
    if len(head) < 8:
        raise CheckpointError(f"{name} is not a safetensors file: it is too short for one")
    length = struct.unpack("<Q", head[:8])[0]
    if not 2 <= length <= HEADER_LIMIT_BYTES:
        raise CheckpointError(f"{name} is not a safetensors file: its header claims {length} bytes")
    if len(head) < 8 + length:
        head += source.head(name, 8 + length - len(head), len(head))
    try:
        header = json.loads(head[8 : 8 + length].decode("utf-8"))
        return {
            tensor: entry["data_offsets"][1] - entry["data_offsets"][0]
            for tensor, entry in header.items()
            if tensor != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise CheckpointError(f"{name} is not a safetensors file: its header is not JSON") from None


def fold_experts(tensors: dict[str, int]) -> dict[str, int]:
    """Sum the experts of a layer under one name (``experts.*.``): a hundredth of the size, the same bytes."""
    folded: dict[str, int] = {}
    for name, size in tensors.items():
        short = _EXPERT.sub("*", name)
        folded[short] = folded.get(short, 0) + size
    return folded


def _object(source: Any, name: str) -> dict[str, Any]:
    raw = source.read(name)
    if not raw.strip():
        raise CheckpointError(f"{name} is empty; a JSON object was expected")
    try:
        # NaN and Infinity, which some configs hold, are not JSON and would not reach the controller.
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=lambda _name: None)
    except ValueError as error:
        raise CheckpointError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{name} holds a JSON {type(value).__name__}; an object was expected")
    return value


def _text(source: Any, name: str) -> str:
    return str(source.read(name).decode("utf-8", "replace"))


def _named_template(value: Any) -> str | None:
    """A chat template: a text, or a list of named texts of which ``default`` counts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        named = {str(entry.get("name")): entry.get("template") for entry in value if isinstance(entry, dict)}
        found = named.get("default") or next(iter(named.values()), None)
        return found if isinstance(found, str) else None
    return None


def chat_template(source: Any, tokenizer_config: dict[str, Any] | None) -> str | None:
    """The chat template: its own file (newer checkpoints), else the tokenizer's key."""
    for name in ("chat_template.jinja", "chat_template.json"):
        if name in source.sizes:
            if name.endswith(".jinja"):
                return _text(source, name)
            return _named_template(_object(source, name).get("chat_template"))
    return _named_template((tokenizer_config or {}).get("chat_template"))


def read_checkpoint(source: Any, identity: str, with_tensors: bool = True) -> dict[str, Any]:
    """The planner's ``model`` input for a checkpoint, without its weights."""
    sizes = source.sizes
    if "config.json" not in sizes:
        also = " It has Mistral's params.json, which is not read here." if "params.json" in sizes else ""
        raise CheckpointError(
            f"{identity} has no config.json in its root folder; without one there is nothing to plan.{also}"
        )
    model: dict[str, Any] = {"id": identity, "config": _object(source, "config.json"), "files": sorted(sizes)}
    if "hf_quant_config.json" in sizes:
        model["quant_config"] = _object(source, "hf_quant_config.json")
    if "tokenizer_config.json" in sizes:
        model["tokenizer_config"] = _object(source, "tokenizer_config.json")
    template = chat_template(source, model.get("tokenizer_config"))
    if template is not None:
        model["chat_template"] = template
    parsers = [name for name in sizes if _PARSER_NAME.search(name) and sizes[name] <= TEXT_LIMIT_BYTES]
    if parsers:
        model["parser_files"] = {name: _text(source, name) for name in sorted(parsers)}

    index_name = "model.safetensors.index.json"
    index = _object(source, index_name) if index_name in sizes else None
    weights = weight_files(sizes, index)
    known = bool(weights) and all(sizes[name] for name in weights) and not _shards_missing(index, sizes)
    if known:
        model["weight_bytes"] = sum(sizes[name] for name in weights)
    headers = with_tensors and (known or isinstance(source, Repository))
    if headers and weights and all(name.endswith(".safetensors") for name in weights):
        with ThreadPoolExecutor(max_workers=8) as pool:
            found = list(pool.map(lambda name: header_tensors(source, name), weights))
        tensors = {name: size for header in found for name, size in header.items()}
        model["tensors"] = fold_experts(tensors)
        model.setdefault("weight_bytes", sum(tensors.values()))  # a mirror that tells no sizes
    return model


def _shards_missing(index: dict[str, Any] | None, sizes: dict[str, int]) -> bool:
    """Whether the index names a shard that is not there (a download under way)."""
    named = {str(name) for name in ((index or {}).get("weight_map") or {}).values()}
    return any(not sizes.get(name) for name in named)
