"""vLLM's own argument parser, without torch and without a GPU.

``python own_parser.py SOURCE < lines.json``, where SOURCE is an unpacked vLLM. The lines are lists of words
as they follow `vllm serve`; the answer maps the number of a refused line to what the parser said.

vLLM builds the parser from its config classes, whose modules import torch, transformers and more. What is not
installed is replaced by stand-ins at the moment it is missed, so only the few packages in ``NEEDS`` are real.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import json
import logging
import sys
import typing
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

NEEDS = ("pydantic", "pydantic-settings", "regex", "pyyaml", "packaging", "numpy", "msgspec", "cloudpickle")
_MOST_MODULES = 10_000


class StandIn(MagicMock):
    """A module that answers to everything; pydantic takes its attributes for types that fit anything."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__spec__ = ModuleSpec(kwargs.get("name") or "stand_in", None)
        self.__path__: list[str] = []

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _Registry:
    """Stands for vLLM's registries of custom operators, whose decorators must hand the class back."""

    @staticmethod
    def register(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        return lambda decorated: decorated


def _schema(function: Callable[..., Any], **unused: Any) -> str:
    """An operator's schema with as many outputs as the function is annotated with: vLLM compares them."""
    result = typing.get_type_hints(function)["return"]
    outputs = len(typing.get_args(result)) if typing.get_origin(result) is tuple else 1
    return f"(Tensor x) -> {', '.join(['Tensor'] * outputs)}"


def _tested_versions(source: Path) -> dict[str, str]:
    """What this release is tested with, by package; vLLM asks for some versions when it is imported."""
    for name in ("requirements/test/cuda.txt", "requirements/test.txt"):
        if (source / name).exists():
            pins = (line.split("==") for line in (source / name).read_text().splitlines() if "==" in line)
            return {pin[0].strip(): pin[1].split()[0] for pin in pins if not pin[0].startswith((" ", "#"))}
    return {}


def _prepare(source: Path) -> None:
    neural = StandIn(name="torch.nn", Parameter=object, Module=type("Module", (), {}))
    sys.modules["torch"] = StandIn(name="torch", nn=neural)
    sys.modules["torch.nn"] = neural
    sys.modules["torch.library"] = StandIn(name="torch.library", infer_schema=_schema)
    for compiled in ("vllm._C", "vllm._C_stable_libtorch"):
        sys.modules[compiled] = StandIn(name=compiled)
    sys.modules["vllm.model_executor.custom_op"] = StandIn(
        name="custom_op", CustomOp=_Registry, PluggableLayer=_Registry
    )
    sys.modules["vllm.utils.torch_utils"] = StandIn(name="torch_utils", direct_register_custom_op=lambda *a, **k: None)
    real, tested = importlib.metadata.version, _tested_versions(source)

    def installed(name: str) -> str:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return real(name)
        return tested.get(name, "0.0.0")

    importlib.metadata.version = installed
    logging.disable(logging.WARNING)


def _with_stand_ins(action: Callable[[], Any]) -> Any:
    """The action's result; every module it misses is stood in for, and the action is tried again."""
    while len(sys.modules) < _MOST_MODULES:
        try:
            return action()
        except ModuleNotFoundError as missed:
            if missed.name is None or missed.name in sys.modules:
                raise
            sys.modules[missed.name] = StandIn(name=missed.name)
    raise RuntimeError("too many modules are missing")


def serve_parser(source: Path) -> Any:
    """The parser of `vllm serve` in a source tree."""
    sys.path.insert(0, str(source))
    sys.argv = ["vllm"]
    _prepare(source)
    home = next(
        package
        for package in ("vllm.entrypoints.common", "vllm.entrypoints.launchers", "vllm.entrypoints.openai")
        if (source / package.replace(".", "/") / "cli_args.py").exists()
    )
    flexible = _with_stand_ins(lambda: importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser)
    arguments = _with_stand_ins(lambda: importlib.import_module(f"{home}.cli_args"))

    def build() -> Any:
        with patch("vllm.config.DeviceConfig.__post_init__"):
            return arguments.make_arg_parser(flexible(prog="vllm serve"))

    return _with_stand_ins(build)


def main() -> None:
    parser = serve_parser(Path(sys.argv[1]).resolve())
    refused: dict[int, str] = {}
    for number, words in enumerate(json.load(sys.stdin)):
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                parser.parse_args(words)
        except SystemExit as end:
            if end.code not in (None, 0):
                refused[number] = said.getvalue().strip().splitlines()[-1]
        except ValueError as error:
            refused[number] = str(error)
    json.dump(refused, sys.stdout)


if __name__ == "__main__":
    main()
