"""The Docker engine of this machine: there, or installed and started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .command import CommandFailed, run, step, succeeds

STATE = Path("/var/lib/dgx-spark-sim")
"""Machine-wide, since the engine is: its log and process id when the simulator started it."""
PIDFILE = STATE / "dockerd.pid"


def as_root(*argv: str) -> list[str]:
    return list(argv) if os.geteuid() == 0 else ["sudo", *argv]


@cache
def client() -> tuple[str, ...]:
    """``docker``, or ``sudo docker`` for who may not use the engine's socket."""
    return ("docker",) if succeeds(["docker", "version"]) else tuple(as_root("docker"))


def docker(*argv: str, stdin: bytes | None = None, log: str | None = None) -> str:
    return run([*client(), *argv], stdin=stdin, log=log)


def docker_ok(*argv: str) -> bool:
    return succeeds([*client(), *argv])


def inspect(kind: str, name: str) -> dict[str, Any] | None:
    """What Docker knows of one thing, or None."""
    try:
        found: list[dict[str, Any]] = json.loads(docker(kind, "inspect", name))
    except CommandFailed:
        return None
    return found[0]


def apt_install(packages: Sequence[str]) -> None:
    run(as_root("apt-get", "update", "-qq"))
    run(
        as_root(
            "env",
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            *packages,
        )
    )


def ensure() -> None:
    """A running engine, whatever this machine had before."""
    if shutil.which("docker") and docker_ok("info"):
        return
    if not shutil.which("dockerd"):
        with step("install Docker"):
            apt_install(["docker.io", "iptables", "ca-certificates"])
    client.cache_clear()
    if docker_ok("info"):
        return
    with step("start Docker"):
        if Path("/run/systemd/system").is_dir():
            run(as_root("systemctl", "start", "docker"))
        else:
            _start_by_hand()
        client.cache_clear()
        for _attempt in range(60):
            if docker_ok("info"):
                return
            time.sleep(0.5)
    raise CommandFailed(f"dockerd does not answer; its log: {STATE}/dockerd.log")


def _start_by_hand() -> None:
    """Where no service manager runs (a container, a build machine)."""
    run(as_root("mkdir", "-p", str(STATE)))
    command = f"echo $$ > {PIDFILE}; exec dockerd >> {STATE}/dockerd.log 2>&1"
    subprocess.Popen(as_root("sh", "-c", command), stdin=subprocess.DEVNULL, start_new_session=True)


def answers() -> bool:
    return bool(shutil.which("docker")) and docker_ok("info")


def stop() -> None:
    """Stop the engine if the simulator started it."""
    if not PIDFILE.exists():
        return
    pid = int(PIDFILE.read_text())
    if succeeds(as_root("kill", "-0", str(pid))):
        run(as_root("kill", f"-{signal.SIGTERM.value}", str(pid)))
        while succeeds(as_root("kill", "-0", str(pid))):
            time.sleep(0.2)
    run(as_root("rm", "-f", str(PIDFILE)))
