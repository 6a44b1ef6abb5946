"""Hold every command line the planner writes against vLLM's own parser, release by release. Slow; needs PyPI.

``python tests/arguments [VERSION ...]`` fetches the source distributions, builds each release's parser (see
own_parser.py) and lets it read the plans of every model known to the tests, on one node and on two. It also
looks into each source for the parsers, chat templates, tokenizer modes and variables that the plans name.
The last line sums up: ``arguments: N of N accepted``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = ROOT / ".cache" / "arguments"
VERSIONS = ("0.19.0", "0.22.0", "0.25.1", "0.32.0", "0.33.0")
sys.path[:0] = [str(ROOT / ".collections"), str(HERE)]

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import (  # noqa: E402
    Checkpoint,
    InputError,
    read_checkpoint,
)
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.engine import engine_settings  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.images import choose_image  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.placement import Node, Placement  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.serving import ServeSpec, serve_spec  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import read_wishes  # noqa: E402
from ansible_collections.dgx_spark.vllm.tests.unit import shared_facts  # noqa: E402
from own_parser import NEEDS  # noqa: E402

NODES = tuple(
    Node(
        name,
        128 << 30,
        fabric_address=f"192.168.100.{i}",
        fabric_interface="enp1s0f0np0",
        rdma_devices=("roce0",),
    )
    for i, name in enumerate(("spark1", "spark2"), 1)
)
LAYOUTS = (("single", "mp"), ("pipeline", "mp"), ("pipeline", "ray"), ("tensor", "mp"))
# Every wish that writes a flag is used once.
WISHES: tuple[Mapping[str, Any], ...] = (
    {},
    {"prefix_caching": False, "kv_cache_dtype": "fp8", "served_model_name": "spark/model", "api_port": 8001},
    {
        "prefix_caching": True,
        "kv_cache_memory_bytes": 8 << 30,
        "speculative": {"method": "mtp", "num_tokens": 2},
    },
    {
        "trust_remote_code": True,
        "max_num_seqs": 16,
        "extra_args": "--load-format fastsafetensors --no-async-scheduling",
    },
)


@dataclass(frozen=True)
class Line:
    """One command line with what it came from."""

    what: str
    words: tuple[str, ...]
    spec: ServeSpec


def models() -> Iterator[Checkpoint]:
    """The models of the parser table, and the real configs where they are at hand."""
    table = yaml.safe_load((ROOT / "tests/unit/plugin_utils/model_parsers.yml").read_text())["models"]
    sizes = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 11008,
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
    }
    for name, architecture, model_type in (row[:3] for row in table):
        config = {"architectures": [architecture], "model_type": model_type, **sizes}
        yield read_checkpoint({"id": name, "config": config})
    for name in shared_facts.model_names():
        try:
            yield read_checkpoint(shared_facts.model_input(name))
        except InputError as error:
            print(f"left out: {name}: {error}")
    if not shared_facts.has_shared():
        print("left out: the real configs, whose folder is not here")


def lines(version: str) -> Iterator[Line]:
    """The command lines of every model for a release: all layouts plain, all wishes on one node."""
    cases = [(layout, {}) for layout in LAYOUTS] + [(LAYOUTS[0], wishes) for wishes in WISHES[1:]]
    for checkpoint in models():
        for (kind, launcher), wished in cases:
            wishes = read_wishes(vllm_version=version, **wished)
            image = choose_image(checkpoint, wishes)
            engine = engine_settings(checkpoint, wishes, image)
            nodes = NODES[:1] if kind == "single" else NODES
            placement = Placement(
                kind,
                tuple(node.name for node in nodes),  # type: ignore[arg-type]
                len(nodes) if kind == "pipeline" else 1,
                len(nodes) if kind == "tensor" else 1,
                launcher,
                "the layout under test",  # type: ignore[arg-type]
            )
            try:
                spec = serve_spec(checkpoint, wishes, image, engine, placement, nodes, 0.85, "default")
            except InputError as error:
                if error.field != "placement":
                    raise
                continue
            for node in nodes:
                words = (checkpoint.id, *spec.args, *spec.node_args[node.name])
                yield Line(f"{checkpoint.id} {kind} {launcher} {sorted(wished)} on {node.name}", words, spec)


# --- vLLM's sources


def tools() -> Path:
    """A Python with the few packages that vLLM's parser really needs."""
    python = HOME / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", HOME / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NEEDS], check=True)
    return python


def source(version: str) -> Path:
    """The unpacked source of a release, fetched once.

    pip asks a package's build backend for its name even to download it. vLLM's backend wants torch for that,
    so the stand-in under no_build answers from the PKG-INFO that lies in the archive.
    """
    target = HOME / f"vllm-{version}"
    if not target.exists():
        archives = HOME / "archives"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-binary",
                "vllm",
                "--no-build-isolation",
                "--dest",
                archives,
                f"vllm=={version}",
            ],
            env=os.environ | {"PYTHONPATH": str(HERE / "no_build")},
            check=True,
        )
        with tarfile.open(next(archives.glob(f"vllm-{version}.tar.gz"))) as archive:
            archive.extractall(HOME, filter="data")
    return target


def registered(file: Path) -> frozenset[str]:
    """The keys of the dictionaries in a file that register parsers."""
    return frozenset(
        key.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


@dataclass(frozen=True)
class Release:
    """What a source knows beside its arguments."""

    reasoning: frozenset[str]
    tool: frozenset[str]
    templates: frozenset[str]
    modes: str
    variables: str

    @classmethod
    def of(cls, root: Path) -> Release:
        return cls(
            registered(root / "vllm/reasoning/__init__.py"),
            registered(root / "vllm/tool_parsers/__init__.py"),
            frozenset(file.name for file in (root / "examples").rglob("*.jinja")),
            (root / "vllm/tokenizers/registry.py").read_text(),
            (root / "vllm/envs.py").read_text(),
        )

    def missing(self, line: Line) -> Iterator[str]:
        """What a line names and this release lacks."""
        value = dict(zip(line.words, line.words[1:], strict=False))
        for flag, names in (("--reasoning-parser", self.reasoning), ("--tool-call-parser", self.tool)):
            if flag in value and value[flag] not in names:
                yield f"{flag} {value[flag]}"
        if "--chat-template" in value and Path(value["--chat-template"]).name not in self.templates:
            yield value["--chat-template"]
        if "--tokenizer-mode" in value and f'"{value["--tokenizer-mode"]}"' not in self.modes:
            yield f"tokenizer mode {value['--tokenizer-mode']}"
        for name in {*line.spec.env_common, *(n for values in line.spec.env_nodes.values() for n in values)}:
            if name.startswith("VLLM_") and re.search(rf"\b{name}\b", self.variables) is None:
                yield name


def main() -> int:
    HOME.mkdir(parents=True, exist_ok=True)
    python, accepted, total = tools(), 0, 0
    for version in sys.argv[1:] or VERSIONS:
        root, found = source(version), list(lines(version))
        answer = subprocess.run(
            [python, HERE / "own_parser.py", root],
            input=json.dumps([line.words for line in found]),
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        refused, release = json.loads(answer.stdout), Release.of(root)
        wrong = {number: [said] for number, said in refused.items()}
        for number, line in enumerate(found):
            for name in release.missing(line):
                wrong.setdefault(str(number), []).append(f"not in {version}: {name}")
        for number, problems in wrong.items():
            print(f"{version}: {found[int(number)].what}: {'; '.join(problems)}")
        print(f"{version}: {len(found) - len(wrong)} of {len(found)} accepted")
        accepted, total = accepted + len(found) - len(wrong), total + len(found)
    print(f"arguments: {accepted} of {total} accepted")
    return 0 if accepted == total else 1


if __name__ == "__main__":
    sys.exit(main())
