# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The anatomy of one log line: when it was written, by whom, and how loud.

A line may carry several prefixes at once (journald, Docker, compose, Ray, rank, vLLM); each knows a part.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

# Longer lines keep their head and tail: messages are at one of the ends, the middle is data.
LINE_LIMIT = 6000
_HEAD, _TAIL = 4500, 1400

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
# Leap year, so that every month and day of a line without a year is a date.
_YEAR = 2024

_ISO = re.compile(
    r"\b(?P<y>20\d\d)-(?P<mo>\d\d)-(?P<d>\d\d)[T ](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
    r"(?P<z>Z|[+-]\d\d:?\d\d)?"
)
_JOURNAL = re.compile(
    r"(?:^|\[)(?:[A-Z][a-z]{2} )?(?P<mon>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2}) "
    r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d{1,9}))?"
)
_VLLM = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<mo>\d\d)-(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
)
_TORCH = re.compile(r"\[[IWEF](?P<mo>\d{1,2})(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<f>\d{1,9})")
_STAMPS = (_ISO, _JOURNAL, _VLLM, _TORCH)

_LEVEL = re.compile(
    r"\b(?P<a>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?=\d\d-\d\d \d\d:|[\w.]{1,40}\.py:\d|\[[\w.]{1,40}:\d)"
    r"|^\s{0,8}(?:\([^)]{1,80}\) ?){0,3}(?P<b>DEBUG|INFO|WARNING|ERROR|CRITICAL): "
    r"|\[(?P<c>DEBUG|INFO|WARNING|ERROR|CRITICAL)\] "
    r"|\blevel=\"?(?P<d>debug|info|warning|warn|error|fatal)\b"
    r"|\bNCCL (?P<e>INFO|WARN|TRACE)\b"
    r"|\[(?:\d{4}-\d\d-\d\d )?[\d:.,]{8,15} (?P<f>[IWEF]) \d"
    r"|^\s{0,8}(?:\([^)]{1,80}\) ?){0,3}(?P<g>DEBUG|INFO|WARNING|ERROR) (?=\S)"
)
_LEVELS = {
    "debug": "info",
    "info": "info",
    "trace": "info",
    "i": "info",
    "warn": "warning",
    "warning": "warning",
    "w": "warning",
}

# "web-1  | text" of docker compose; several services may share one paste.
_COMPOSE = re.compile(r"^(?P<tag>[A-Za-z0-9][\w.-]{0,60}?)\s{1,12}\| ")
_DOCKER_JSON = re.compile(
    r'^\{"log":"(?P<log>.*?)(?:\\n)?","stream":"\w+"(?:,"attrs":\{[^}]*\})?,"time":"(?P<time>[^"]+)"\}'
)
_ANSI = re.compile(r"\x1b\[[0-9;]{0,12}[A-Za-z]")


def shorten(line: str) -> str:
    """A line of bounded length without terminal colours; docker's json-file form is unpacked."""
    if len(line) > LINE_LIMIT:
        line = f"{line[:_HEAD]} … {line[-_TAIL:]}"
    if line.startswith('{"log":'):
        match = _DOCKER_JSON.match(line)
        if match:
            text = match["log"].replace('\\"', '"').replace("\\t", " ").replace("\\u001b", "\x1b")
            line = f"{match['time']} {text}"
    return _ANSI.sub("", line) if "\x1b" in line else line


def level(line: str) -> str:
    """``info``, ``warning`` or ``error`` as the program marked it; empty when it did not."""
    match = _LEVEL.search(line, 0, 400)
    if match is None:
        return ""
    if match["e"] == "WARN":  # NCCL's loudest level
        return "error"
    word = next(group for group in match.groups() if group).lower()
    return _LEVELS.get(word, "error")


def service(line: str) -> str:
    """The compose service that printed the line, if it says so."""
    match = _COMPOSE.match(line)
    return match["tag"] if match else ""


def stamp(line: str) -> float | None:
    """Seconds on one common clock, or None. The outermost prefix counts: it is the collector's clock.

    Lines without a year are placed in one and the same year; an offset is applied where it is written.
    """
    found = [match for pattern in _STAMPS if (match := pattern.search(line, 0, 300))]
    for match in sorted(found, key=lambda match: match.start()):
        groups = match.groupdict()
        month = _MONTHS.get(groups["mon"].lower()) if groups.get("mon") else int(groups["mo"])
        try:
            moment = datetime(
                _YEAR, month or 0, int(groups["d"]), int(groups["h"]), int(groups["mi"]), int(groups["s"])
            )
        except ValueError:
            continue
        zone = groups.get("z")
        if zone and zone != "Z":
            sign = 1 if zone[0] == "+" else -1
            moment -= sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        fraction = groups.get("f")
        return (moment - datetime(_YEAR, 1, 1)).total_seconds() + (float(f"0.{fraction}") if fraction else 0.0)
    return None
