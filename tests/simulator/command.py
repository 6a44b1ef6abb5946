"""Running other programs, and saying what takes how long."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class CommandFailed(Exception):
    """A program ended with an error; the text holds its command line and its last words."""


def run(argv: Sequence[str], *, stdin: bytes | None = None, log: str | None = None) -> str:
    """Run to the end and return what it printed; ``log`` names a file that takes long output instead."""
    if log is not None:
        with open(log, "ab") as stream:
            ended = subprocess.run(argv, input=stdin, stdout=stream, stderr=subprocess.STDOUT, check=False)
        if ended.returncode:
            with open(log, encoding="utf-8", errors="replace") as stream_read:
                raise CommandFailed(f"{' '.join(argv)}\n{''.join(stream_read.readlines()[-30:])}(all of it: {log})")
        return ""
    ended = subprocess.run(argv, input=stdin, capture_output=True, check=False)
    if ended.returncode:
        raise CommandFailed(f"{' '.join(argv)}\n{ended.stderr.decode(errors='replace').strip()}")
    return ended.stdout.decode(errors="replace").strip()


def succeeds(argv: Sequence[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a step and print its seconds."""
    print(f"simulator: {what} ...", file=sys.stderr, flush=True)
    begin = time.monotonic()
    yield
    print(f"simulator: {what}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
