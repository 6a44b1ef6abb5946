# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the checks that `make test` is made of and sum them up in one line: `N passed, N failed`.

Usage: run.py [STEP...]; without a name all steps run, in the order of STEPS. A failed step does not stop the next
ones, unless they need what it made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
BIN = Path(sys.executable).parent
# ansible-test fetches a pip of its own before it makes its environments; this does the same from what Python brings.
PIP_STAND_IN = """import subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip"])
words = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
subprocess.check_call([sys.executable, "-m", "pip", "install", *words]) if words else None
"""


@dataclass(frozen=True)
class Outcome:
    """Checks passed and failed in one step."""

    passed: int
    failed: int
    skipped: int = 0


def run(*words: str | Path, cwd: Path = ROOT, **environment: str) -> bool:
    """Run a command with the tools of this environment first on the PATH; True when it exits with 0."""
    command = [str(word) for word in words]
    print("+", " ".join(command), flush=True)
    variables = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"} | environment
    return subprocess.run(command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, check=False).returncode == 0


def tally(*results: bool) -> Outcome:
    return Outcome(sum(results), len(results) - sum(results))


def stage(directory: str) -> Path:
    """A copy of the files that git does not ignore, where ansible-test wants a collection to be.

    Outside the checkout, as ansible-test would find its .gitignore there and skip all.
    """
    home = Path(directory) / "ansible_collections/dgx_spark/vllm"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file() and not name.startswith(".collections/"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, home / name, follow_symlinks=False)
    return home


def lint() -> Outcome:
    sources = ["plugins", "roles", "tests", "benchmarks", "docs", "molecule"]
    return tally(
        run("ruff", "check", *sources),
        run("ruff", "format", "--check", *sources),
        run(
            "mypy",
            "--namespace-packages",
            "--explicit-package-bases",
            ".collections/ansible_collections/dgx_spark/vllm/plugins/plugin_utils",
            MYPYPATH=".collections",
        ),
        # By name, as it takes minutes over the fact tables, which are no Ansible content.
        run("ansible-lint", "--offline", "playbooks", "roles", "molecule", "inventories", "meta", "galaxy.yml"),
    )


def sanity() -> Outcome:
    home = CACHE / "home"
    pip = home / ".ansible/test/cache/get_pip_24_2.py"
    pip.parent.mkdir(parents=True, exist_ok=True)
    pip.write_text(PIP_STAND_IN, encoding="utf-8")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory() as directory:
        return tally(
            run("ansible-test", "sanity", "--python", version, "--color", "no", cwd=stage(directory), HOME=str(home))
        )


def unit() -> Outcome:
    report = CACHE / "unit.xml"
    report.unlink(missing_ok=True)
    run(sys.executable, "-m", "pytest", "-q", f"--junitxml={report}")
    if not report.exists():
        return Outcome(0, 1)
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    return Outcome(number["tests"] - failed - number["skipped"], failed, number["skipped"])


def artefact() -> Outcome:
    """What a user installs: built, installed elsewhere, its playbooks run by their full names."""
    built, installed = CACHE / "artefact", CACHE / "installed"
    for directory in (built, installed):
        shutil.rmtree(directory, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        if not run("ansible-galaxy", "collection", "build", stage(directory), "--output-path", built, "--force"):
            return Outcome(0, 1)
    archive = next(built.glob("*.tar.gz"))
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(installed)}
    steps = (
        (["ansible-galaxy", "collection", "install", archive, "--collections-path", installed, "--no-deps"], built),
        (["ansible-playbook", "dgx_spark.vllm.init", "-e", f"dest={installed}/work"], built),
        (["ansible-playbook", "deploy.yml", "-i", "spark-pair", "--syntax-check"], installed / "work"),
    )
    results = []
    for words, directory in steps:
        results.append(directory.is_dir() and run(*words, cwd=directory, **environment))
    return tally(*results)


def molecule() -> Outcome:
    results = []
    shutil.rmtree(CACHE / "answers", ignore_errors=True)
    if not run(sys.executable, "-m", "simulator", "up", cwd=ROOT / "tests"):
        return Outcome(0, 1)
    try:
        for scenario in sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")):
            results.append(run("molecule", "test", "--scenario-name", scenario))
    finally:
        run(sys.executable, "-m", "simulator", "down", cwd=ROOT / "tests")
    return tally(*results)


STEPS: dict[str, Callable[[], Outcome]] = {
    "lint": lint,
    "unit": unit,
    "artefact": artefact,
    "sanity": sanity,
    "molecule": molecule,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        sys.exit(f"There is no step {', '.join(unknown)}; the steps are {', '.join(STEPS)}.")
    outcomes: dict[str, Outcome] = {}
    lines = []
    for name in names or list(STEPS):
        print(f"\n=== {name}", flush=True)
        started = time.monotonic()
        outcomes[name] = STEPS[name]()
        result = outcomes[name]
        lines.append(
            f"{name:10} {result.passed:5} passed {result.failed:3} failed {result.skipped:3} skipped "
            f"{time.monotonic() - started:6.0f} s"
        )
    print("\n=== summary", *lines, sep="\n")
    failed = sum(outcome.failed for outcome in outcomes.values())
    print(f"{sum(outcome.passed for outcome in outcomes.values())} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
