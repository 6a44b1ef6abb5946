# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which image serves a checkpoint, which vLLM version it holds, and what that version cannot do.

The version decides about flags, variables and parsers, so it is settled first: the wish, else what the
reference of the asked-for image tells, else the newest release looked at that knows the architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .knowledge import knowledge
from .parsers import repository_name
from .versions import holds, version
from .wishes import Wishes

# The first version whose multiprocessing executor crosses nodes (vLLM 0.12.0 engine/arg_utils.py, --nnodes).
MP_SINCE = "0.12.0"


@dataclass(frozen=True, slots=True)
class Image:
    """The image and the vLLM version planned with.

    ``stock`` images are built by the vLLM project. ``exact`` ones hold exactly that release: a flag or parser
    it does not know is refused, where others may have more.
    """

    reference: str
    version: str
    stock: bool
    exact: bool
    ngc: bool
    reason: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Support:
    """The versions that can serve an architecture; ``last`` is None while it is supported."""

    since: str
    last: str | None


@cache
def _architectures() -> Mapping[str, Support]:
    return {
        name: Support(str(row["since"]), row.get("last"))
        for row in knowledge("architectures")["rows"]
        for name in row["names"]
    }


def support(architecture: str) -> Support | None:
    """Since and until when vLLM serves an architecture; None for one it never had."""
    return _architectures().get(architecture)


def serves(architecture: str, at: str) -> bool | None:
    """Whether a version serves an architecture; None when the architecture is unknown."""
    known = support(architecture)
    if known is None:
        return None
    return version(known.since) <= version(at) and (known.last is None or version(at) <= version(known.last))


@cache
def _references() -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    return tuple((re.compile(row["match"]), row) for row in knowledge("images")["references"])


@cache
def _notices() -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    return tuple((re.compile(row["match"]), row) for row in knowledge("images")["notices"])


@cache
def _needs() -> tuple[tuple[Mapping[str, re.Pattern[str]], Mapping[str, Any]], ...]:
    return tuple(
        (
            {key: re.compile(row[key], re.IGNORECASE) for key in ("name", "algo", "format") if key in row},
            row,
        )
        for row in knowledge("images")["needs"]
    )


def default_version() -> str:
    """The newest release looked at."""
    return str(knowledge("images")["default"]["version"])


def stock_reference(at: str) -> tuple[str, str]:
    """The stock image of a version, and why that tag."""
    data = knowledge("images")
    row = next(row for row in data["tags"] if holds(row, at))
    return f"{data['default']['repository']}:{row['tag'].format(version=at)}", row["why"]


def choose_image(checkpoint: Checkpoint, wishes: Wishes) -> Image:
    """The image for a checkpoint. InputError when the wishes for image and version contradict each other."""
    if wishes.image is None:
        at, why = (wishes.vllm_version, "asked for") if wishes.vllm_version else _version_for(checkpoint)
        reference, tag_why = stock_reference(at)
        found = Image(reference, at, True, _looked_at(at), ngc=False, reason=f"vLLM {at}: {why}; {tag_why}")
    else:
        found = _asked_image(wishes.image, wishes.vllm_version)
    return replace(found, findings=(*found.findings, *_image_notices(found), *_missing(checkpoint, found)))


def _version_for(checkpoint: Checkpoint) -> tuple[str, str]:
    newest, known = default_version(), support(checkpoint.architecture)
    if known is None or serves(checkpoint.architecture, newest):
        return newest, str(knowledge("images")["default"]["why"])
    served = [at for at in knowledge("images")["releases"] if serves(checkpoint.architecture, at)]
    if not served:
        return newest, "the newest release looked at; none looked at serves this architecture"
    return str(served[-1]), f"the last release looked at that serves {checkpoint.architecture}"


@cache
def _looked_at(at: str) -> bool:
    """Whether a release was read, or is a later patch of one that was: its flags and parsers are known."""
    return any(
        version(at)[:2] == version(read)[:2] and version(at) >= version(read)
        for read in knowledge("images")["releases"]
    )


def _asked_image(reference: str, wished: str | None) -> Image:
    for pattern, row in _references():
        match = pattern.search(reference)
        if match is None:
            continue
        groups = match.groupdict()
        told = groups.get("version") or row.get("version")
        told = ".".join(map(str, version(told))) if told else None
        stock, ngc = bool(row.get("stock")), bool(row.get("ngc"))
        if told and wished and told != wished and stock:
            raise InputError("vllm_version", f"expected {told}, which the image {reference} holds, got {wished}")
        at = wished or told or default_version()
        unsure = () if told or wished else (_version_unknown(reference, at),)
        # A stock tag that moves may hold another version than planned with.
        exact = stock and told is not None and _looked_at(told)
        return Image(reference, at, stock, exact, ngc, f"asked for; vLLM {at}", unsure)
    at = wished or default_version()
    return Image(
        reference,
        at,
        stock=False,
        exact=False,
        ngc=False,
        reason=f"asked for; vLLM {at}",
        findings=() if wished else (_version_unknown(reference, at),),
    )


def _image_notices(image: Image) -> Iterator[Finding]:
    releases = knowledge("images")["releases"]
    if not version(releases[0]) <= version(image.version) <= version(releases[-1]):
        yield _version_not_read(image.version, releases[0], releases[-1])
    for pattern, row in _notices():
        if pattern.search(image.reference):
            fill = {"version": image.version, "newest": default_version()}
            yield Finding(
                level=row["level"],
                id=row["id"],
                what=row["what"].format(**fill),
                why=row["why"],
                fix=row["fix"].format(**fill),
                source=row["source"],
            )


def _missing(checkpoint: Checkpoint, image: Image) -> Iterator[Finding]:
    """What the checkpoint needs and the version lacks."""
    known, newest = support(checkpoint.architecture), default_version()
    if known is None:
        if checkpoint.architecture:
            yield _architecture_unknown(checkpoint)
    elif version(image.version) < version(known.since):
        # Between two releases looked at nobody knows; up to the older of them the class is missing for sure.
        before = [at for at in knowledge("images")["releases"] if version(at) < version(known.since)]
        other = any(
            re.search(row["architecture"], checkpoint.architecture) for row in knowledge("images")["second_formats"]
        )
        missing = bool(before) and version(image.version) <= version(before[-1]) and not other
        yield _too_old(
            "architecture-too-new",
            "error" if missing else "warning",
            f"{checkpoint.architecture} came with vLLM {known.since} at the latest; "
            f"{image.reference} is planned as {image.version}.",
            "vLLM refuses an architecture it does not know.",
            known.since,
            "vLLM model registry per release",
        )
    elif known.last is not None and version(image.version) > version(known.last):
        yield Finding(
            level="error",
            id="architecture-removed",
            what=f"{checkpoint.architecture} was served up to vLLM {known.last}; planned is {image.version}.",
            why="The class was taken out of vLLM.",
            fix=f"Set vllm_version to {known.last} or older, or choose another model.",
            source="vLLM 0.33.0 model registry, previously supported models",
        )
    facts = {
        "name": repository_name(checkpoint.id),
        "algo": checkpoint.quantization.algo or "",
        "format": checkpoint.quantization.format,
    }
    for patterns, row in _needs():
        if version(image.version) >= version(row["since"]):
            continue
        if all(pattern.search(facts[key]) for key, pattern in patterns.items()):
            yield _too_old(
                row["id"],
                row["level"],
                f"{checkpoint.id} needs vLLM {row['since']}; {image.reference} counts as {image.version}.",
                row["why"],
                row["since"] if not image.ngc else newest,
                row["source"],
            )
            return


def _too_old(id_: str, level: str, what: str, why: str, since: str, source: str) -> Finding:
    return Finding(
        level="error" if level == "error" else "warning",
        id=id_,
        what=what,
        why=why,
        fix=f"Use {stock_reference(default_version())[0]}, or any release from {since} on.",
        source=source,
    )


def _architecture_unknown(checkpoint: Checkpoint) -> Finding:
    return Finding(
        level="warning",
        id="architecture-not-in-vllm",
        what=f"No vLLM release looked at has a class for {checkpoint.architecture}.",
        why="vLLM then tries its generic Transformers path, which may refuse the model or run it slowly.",
        fix="Check the model card for the vLLM it asks for; set vllm_image and vllm_version.",
        source="vLLM 0.11 to 0.33 model registry",
    )


def _version_unknown(reference: str, at: str) -> Finding:
    return Finding(
        level="warning",
        id="image-version-unknown",
        what=f"{reference} does not tell its vLLM version; it is planned as {at}.",
        why="Flags, variables and parsers follow the version.",
        fix="Set vllm_version to what `vllm --version` says in the image.",
        source="knowledge/images.yml",
    )


def _version_not_read(at: str, oldest: str, newest: str) -> Finding:
    return Finding(
        level="warning",
        id="version-not-read",
        what=f"vLLM {at} lies outside the releases looked at ({oldest} to {newest}).",
        why="It is planned like the nearest of them: flags may have gone or defaults changed.",
        fix=f"Set vllm_version to {newest} or older, or check the command line with vllm serve --help=all.",
        source="knowledge/images.yml",
    )


@dataclass(frozen=True, slots=True)
class Layer:
    """A Python package added to the image: what pip is asked for, and why."""

    package: str
    requirement: str
    why: str


@cache
def layer(package: str, at: str) -> Layer | None:
    """The layer that brings a package at a version; None when the image has it, or nobody knows."""
    row = next((row for row in knowledge("images")["layers"] if row["package"] == package and holds(row, at)), None)
    if row is None or row["requirement"] is None:
        return None
    return Layer(package, row["requirement"], row["why"])
