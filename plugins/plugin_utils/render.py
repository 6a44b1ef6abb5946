# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A plan as a page to read, as Markdown, or as JSON. Knows the contract's keys, not how they came about."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

GIB = 1 << 30
PARTS = (
    ("weight_bytes", "weights", "█"),
    ("kv_bytes", "KV cache", "▓"),
    ("state_bytes", "states", "▒"),
    ("overhead_bytes", "overhead", "░"),
)
FREE, LIMIT = "·", "│"
BAR_WIDTH = 48
MARKS = {"error": "✗", "warning": "!", "note": "·"}


def gib(size: float) -> str:
    """Bytes as GiB with one decimal; ``-0.0`` never shows."""
    return f"{round(size / GIB, 1) + 0.0:.1f} GiB"


def memory_bar(node: Mapping[str, Any], width: int = BAR_WIDTH) -> str:
    """A node's memory as a bar: what is taken, what is free, and where the limit stands.

    Every part that is not nothing shows at least one cell, and what goes beyond the node's memory is cut off.
    """
    total = max(int(node.get("memory_total_bytes") or 0), 1)
    cells: list[str] = []
    taken = 0
    for key, _name, sign in PARTS:
        size = max(int(node.get(key) or 0), 0)
        taken += size
        until = min(width, max(round(taken / total * width), len(cells) + (1 if size else 0)))
        cells.extend(sign * (until - len(cells)))
    cells.extend(FREE * (width - len(cells)))
    limit = int(node["footprint_bytes"]) + int(node["headroom_bytes"])
    cells.insert(min(width, max(0, round(limit / total * width))), LIMIT)
    return "".join(cells)


def verdict(plan: Mapping[str, Any]) -> str:
    """One line: does it fit, where, with what margin."""
    placement, nodes = plan["placement"], plan["memory"]["nodes"]
    count = len(placement["nodes"])
    where = {
        "single": f"on {placement['nodes'][0]} alone",
        "pipeline": f"in a pipeline of {count} nodes ({', '.join(placement['nodes'])})",
        "tensor": f"tensor parallel over {count} nodes ({', '.join(placement['nodes'])})",
    }[placement["kind"]]
    if not nodes:
        return f"DOES NOT FIT {where}"
    tightest = min(nodes, key=lambda node: int(node["headroom_bytes"]))
    room = int(tightest["headroom_bytes"])
    if plan["fits"]:
        return f"FITS {where}, with {gib(room)} to spare{_on(tightest, count)}"
    if room >= 0:
        return f"WILL NOT RUN {where}: see the errors below"
    return f"DOES NOT FIT {where}: {gib(-room)} too much{_on(tightest, count)}"


def _on(node: Mapping[str, Any], count: int) -> str:
    return f" on {node['name']}" if count > 1 else ""


def _billions(value: float | None) -> str:
    if not value:
        return "unknown"
    return f"{value / 1e9:.1f} B" if value >= 1e9 else f"{value / 1e6:.3g} M"


def _model_line(model: Mapping[str, Any]) -> str:
    parameters = f"{_billions(model['parameters'])} parameters"
    if model["sparsity"] == "moe":
        parameters += f", {_billions(model['active_parameters'])} active"
    named = model["quantization"]
    quantization = "not quantized" if named in (None, "none") else str(named)
    bits = model["bits_per_weight"]
    parts = [
        model["architecture"] or "unknown architecture",
        "mixture of experts" if model["sparsity"] == "moe" else "dense",
        parameters,
        quantization + (f", {bits:.3g} bits a weight" if bits else ""),
        "attention: " + " + ".join(model["attention"]) if model["attention"] else "no attention",
    ]
    parts += ["reads images"] if model["multimodal"] else []
    parts += ["runs code of its repository"] if model["remote_code"] else []
    return "; ".join(parts)


def _context_line(plan: Mapping[str, Any]) -> str:
    memory, native = plan["memory"], plan["model"]["native_context"]
    of_native = f" of {native:,}" if native else ""
    per_token = memory["kv_bytes_per_token"]
    grows = f"; a token takes {per_token / 1024:,.4g} KiB" if per_token else "; the cache does not grow"
    return (
        f"{memory['context']:,}{of_native} tokens; {memory['concurrency']:,.2f} requests of it at once,"
        f" {memory['kv_tokens']:,} tokens in all{grows}"
    )


def _speed_line(speed: Mapping[str, Any]) -> str:
    rate = speed["decode_tokens_per_second"]
    if not rate["expected"]:
        return "unknown"
    deep = (speed.get("at_full_context") or rate)["expected"]
    slows = f"; {deep:g} at the end of a full context" if deep < 0.9 * rate["expected"] else ""
    return (
        f"about {rate['expected']:g} tokens/s for one request ({rate['low']:g} to {rate['high']:g}){slows}; "
        f"{speed['bytes_per_token'] / 1e9:.3g} GB read a token, bound by {speed['bound_by']}; "
        f"roofline {speed['roofline_tokens_per_second']:g}"
    )


def _thinking_line(model: Mapping[str, Any]) -> str:
    return {
        "none": "has no thinking mode",
        "on": "thinks unless told not to",
        "off": "thinks when told to",
        "always": "always thinks",
        "adaptive": "decides itself whether to think",
    }.get(str(model["thinking"]), "unknown")


def flags(arguments: Sequence[str]) -> list[str]:
    """A command line's arguments, each flag with its values on one (shell-quoted) line."""
    lines: list[list[str]] = []
    for argument in arguments:
        if (argument.startswith("-") and not argument.lstrip("-").replace(".", "").isdigit()) or not lines:
            lines.append([argument])
        else:
            lines[-1].append(argument)
    return [" ".join(shlex.quote(word) for word in line) for line in lines]


def _flag_name(line: str) -> str:
    return line.split(" ", 1)[0].split("=", 1)[0]


def _title(plan: Mapping[str, Any]) -> str:
    return str(plan["model"].get("id") or plan["model"]["architecture"])


def _facts(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    placement, serve = plan["placement"], plan["serve"]
    layered = serve["layers_added_to_image"]
    image = serve["image"] + (f" with {', '.join(layered)} added" if layered else "")
    facts = [
        ("why there", placement["reason"]),
        ("model", _model_line(plan["model"])),
        ("context", _context_line(plan)),
        ("speed", _speed_line(plan["speed"])),
        ("thinking", _thinking_line(plan["model"])),
        ("image", f"{image} (vLLM {serve['vllm_version']})"),
    ]
    if len(placement["nodes"]) > 1:
        facts.append(("launcher", {"ray": "a Ray cluster", "mp": "vLLM's own --nnodes"}[placement["launcher"]]))
    return facts


def _environment(serve: Mapping[str, Any]) -> list[tuple[str, Mapping[str, str]]]:
    env = serve["env"]
    return [("on every node", env["common"]), *((f"on {name}", env["nodes"][name]) for name in env["nodes"])]


def page(plan: Mapping[str, Any], width: int = 100) -> str:
    """The plan for a person at a terminal: the verdict first, then memory, command, environment, findings."""
    out = [_title(plan), verdict(plan), ""]
    for name, text in _facts(plan):
        out += hanging(f"{name:<10}", text, width)
    out += ["", "Memory", *_memory(plan), "", "Command", *_command(plan, width)]
    variables = [(where, env) for where, env in _environment(plan["serve"]) if env]
    if variables:
        out += ["", "Environment"]
        for where, env in variables:
            out += [f"  {where}", *(f"    {key}={value}" for key, value in env.items())]
    out += ["", "Findings", *_findings(plan["findings"], width)]
    return "\n".join(line.rstrip() for line in out) + "\n"


def hanging(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head]


def _memory(plan: Mapping[str, Any]) -> list[str]:
    nodes = plan["memory"]["nodes"]
    longest = max((len(node["name"]) for node in nodes), default=0)
    lines = []
    for node in nodes:
        limit = int(node["footprint_bytes"]) + int(node["headroom_bytes"])
        first, last = node["layers"]
        lines.append(
            f"  {node['name']:<{longest}}  {memory_bar(node)}  {gib(node['footprint_bytes'])} of {gib(limit)}"
            f"  layers {first} to {last - 1}"
        )
        parts = (f"{name} {gib(node[key])}" for key, name, _sign in PARTS if node[key])
        lines.append(f"  {'':<{longest}}  {', '.join(parts)}")
    legend = "  ".join(f"{sign} {name}" for _key, name, sign in PARTS)
    return [*lines, f"  {'':<{longest}}  {legend}  {FREE} free  {LIMIT} limit"]


def _command(plan: Mapping[str, Any], width: int) -> list[str]:
    serve = plan["serve"]
    reasons: Mapping[str, str] = serve.get("reasons") or {}
    lines = [f"  vllm serve {shlex.quote(_title(plan))} \\"]
    rows = flags(serve["args"])
    column = min(max((len(row) for row in rows), default=0) + 8, 52)
    said = ""
    for number, row in enumerate(rows):
        text = f"    {row}" + (" \\" if number < len(rows) - 1 else "")
        why = reasons.get(_flag_name(row), "")
        said, why = why, "the same" if why and why == said else why
        if not why:
            lines.append(text)
        elif len(text) < column:
            lines += hanging(f"{text:<{column}}# ", why, max(width, column + 40))
        else:
            lines += [text, *hanging(" " * column + "# ", why, max(width, column + 40))]
    for name, extra in (serve.get("node_args") or {}).items():
        if extra:
            lines.append(f"  and on {name}: {' '.join(shlex.quote(word) for word in extra)}")
    return lines


def _findings(findings: Iterable[Mapping[str, str]], width: int) -> list[str]:
    lines: list[str] = []
    for finding in findings:
        lines += hanging(f"  {MARKS[finding['level']]} ", f"{finding['what']} [{finding['id']}]", width)
        if finding["why"]:
            lines += hanging("      ", finding["why"], width)
        if finding["fix"]:
            lines += hanging("    → ", finding["fix"], width)
    return lines or ["  none"]


def markdown(plan: Mapping[str, Any]) -> str:
    """The plan as Markdown, for an issue or a note."""
    out = [f"# {_title(plan)}", "", f"**{verdict(plan)}**", ""]
    out += [f"- {name}: {text}" for name, text in _facts(plan)]
    out += [
        "",
        "## Memory",
        "",
        "| node | layers | " + " | ".join(name for _key, name, _sign in PARTS) + " | sum | limit |",
    ]
    out.append("|---" * (len(PARTS) + 4) + "|")
    for node in plan["memory"]["nodes"]:
        limit = int(node["footprint_bytes"]) + int(node["headroom_bytes"])
        cells = [node["name"], f"{node['layers'][0]} to {node['layers'][1] - 1}"]
        cells += [gib(node[key]) for key, _name, _sign in PARTS] + [gib(node["footprint_bytes"]), gib(limit)]
        out.append("| " + " | ".join(cells) + " |")
    rows = flags(plan["serve"]["args"])
    command = " \\\n  ".join([f"vllm serve {shlex.quote(_title(plan))}", *rows])
    out += ["", "## Command", "", "```sh", command, "```", ""]
    reasons = plan["serve"].get("reasons") or {}
    out += [f"- `{row}`: {reasons[_flag_name(row)]}" for row in rows if reasons.get(_flag_name(row))]
    for where, env in _environment(plan["serve"]):
        if env:
            out += [
                "",
                f"Environment {where}:",
                "",
                "```sh",
                *(f"{key}={shlex.quote(str(env[key]))}" for key in env),
                "```",
            ]
    out += ["", "## Findings", ""]
    for finding in plan["findings"]:
        fix = f" *Fix:* {finding['fix']}" if finding["fix"] else ""
        out.append(f"- **{finding['level']}** `{finding['id']}`: {finding['what']} {finding['why']}{fix}")
    if not plan["findings"]:
        out.append("None.")
    return "\n".join(out) + "\n"


def as_json(plan: Mapping[str, Any]) -> str:
    """The plan for machines, key by key in the contract's order."""
    return json.dumps(plan, indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "page": page,
    "markdown": markdown,
    "json": as_json,
}
