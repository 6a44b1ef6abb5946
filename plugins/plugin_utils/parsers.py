# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which reasoning and tool parser a checkpoint needs, and whether it thinks.

The rows of ``knowledge/parsers.yml`` decide by repository name, architecture and chat template. A reasoning
parser is never chosen for a model without a think mode: vLLM then takes the whole answer for unfinished
reasoning and ``content`` stays null (vLLM 0.33, reasoning/basic_parsers.py).
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Literal

from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .knowledge import knowledge
from .versions import holds

Kind = Literal["reasoning", "tool"]
KINDS: tuple[Kind, ...] = ("reasoning", "tool")
_SOURCE = "knowledge/parsers.yml"
# Where plugin files of a repository are mounted: the command line must not depend on the cache's layout.
PLUGIN_HOME = "/spark"
_TEMPLATE_HOME = "/vllm-workspace/examples"
_MANAGERS: Mapping[str, Kind] = {"ReasoningParserManager": "reasoning", "ToolParserManager": "tool"}
_CACHE_PATH = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/")


@dataclass(frozen=True, slots=True)
class FamilyArgument:
    """A flag that the whole family needs, and why."""

    flag: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Registered:
    """A parser that a plugin file registers."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """A parser file of the repository that has to be loaded: vLLM runs it."""

    kind: Kind
    name: str
    file: str

    @property
    def path(self) -> str:
        """Where the container finds the file."""
        return f"{PLUGIN_HOME}/{self.file.rsplit('/', 1)[-1]}"


@dataclass(frozen=True, slots=True)
class Parsers:
    """The choice: ``thinking`` is none, on, off, always or adaptive; ``rule`` the row that decided."""

    rule: str | None
    thinking: str
    toggle: str | None = None
    reasoning: str | None = None
    tool: str | None = None
    chat_template: str | None = None
    arguments: tuple[FamilyArgument, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    layers: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


# --- Names and texts of a checkpoint


def repository_name(checkpoint_id: str) -> str:
    """The repository's own name, lower case: without owner, directory or the hub cache's wrapping."""
    cached = _CACHE_PATH.search(checkpoint_id)
    return (cached["name"] if cached else checkpoint_id.rstrip("/").rsplit("/", 1)[-1]).lower()


def template_text(checkpoint: Checkpoint) -> str | None:
    """The chat template, from its own file or from tokenizer_config.json; None when neither was read."""
    if checkpoint.chat_template:
        return checkpoint.chat_template
    held = checkpoint.tokenizer_config.get("chat_template")
    if isinstance(held, str):
        return held
    if isinstance(held, Sequence):
        return "\n".join(str(item.get("template", "")) for item in held if isinstance(item, Mapping)) or None
    return None


def _added_tokens(checkpoint: Checkpoint) -> frozenset[str] | None:
    """The added tokens of tokenizer_config.json, or None when it does not list them."""
    decoder = checkpoint.tokenizer_config.get("added_tokens_decoder")
    if not isinstance(decoder, Mapping):
        return None
    return frozenset(str(token.get("content")) for token in decoder.values() if isinstance(token, Mapping))


# --- Parsers that a repository ships


def registered_parsers(text: str) -> tuple[Registered, ...]:
    """The parser names that a plugin file registers, read from its syntax tree; the file is never run.

    Both ways of vLLM are understood: ``register_module`` as decorator or call (name first, by keyword, as a
    list, or left out, when the class gives it) and ``register_lazy_module``.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    managers = dict(_MANAGERS)
    constants: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for item in node.names:
                if item.asname and item.name in _MANAGERS:
                    managers[item.asname] = _MANAGERS[item.name]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            constants |= {target.id: str(node.value.value) for target in node.targets if isinstance(target, ast.Name)}
    decorators = {
        id(decorator): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
    }
    found: dict[Registered, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for parser in _registrations(node, managers, constants, decorators.get(id(node))):
                found.setdefault(parser)
    return tuple(found)


def _registrations(
    call: ast.Call, managers: Mapping[str, Kind], constants: Mapping[str, str], decorated: str | None
) -> Iterator[Registered]:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in (
        "register_module",
        "register_lazy_module",
    ):
        return
    owner = function.value
    kind = managers.get(
        owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", ""),
    )
    if kind is None:
        return
    named = {item.arg: item.value for item in call.keywords}
    given = named.get("name", call.args[0] if call.args else None)
    nodes: Sequence[ast.expr | None] = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    names = [
        node.value if isinstance(node, ast.Constant) else constants.get(getattr(node, "id", ""), "")
        for node in nodes
        if node is not None
    ]
    if not any(names):
        names = [decorated or getattr(named.get("module"), "id", "")]
    yield from (Registered(kind, name) for name in names if isinstance(name, str) and name)


# --- What a version knows


@cache
def known_parsers(kind: Kind, at: str) -> frozenset[str]:
    """The parser names that a vLLM version registers."""
    rows = knowledge("parsers")["registry"]["names"]
    return frozenset(name for row in rows if row["kind"] == kind and holds(row, at) for name in row["names"])


@cache
def first_version(kind: Kind, name: str) -> str | None:
    """The first version looked at that registers a parser; None for a name that none does."""
    rows = knowledge("parsers")["registry"]["names"]
    return next((str(row["since"]) for row in rows if row["kind"] == kind and name in row["names"]), None)


def _candidates(entries: Sequence[Any], at: str) -> list[str]:
    rows = [entry if isinstance(entry, Mapping) else {"name": entry} for entry in entries]
    return [str(row["name"]) for row in rows if holds(row, at)]


# --- Rules


@dataclass(frozen=True, slots=True)
class _Rule:
    row: Mapping[str, Any]
    name: re.Pattern[str] | None
    architecture: re.Pattern[str] | None
    template: re.Pattern[str] | None
    alias: re.Pattern[str] | None

    def matches(self, name: str, architecture: str, template: str | None) -> bool:
        # A config without architectures is told by its name, where the row gives one.
        kind, subject = (self.architecture, architecture) if architecture else (self.alias, name)
        return (
            (self.name is None or self.name.search(name) is not None)
            and (self.architecture is None or (kind is not None and kind.search(subject) is not None))
            and (self.template is None or (template is not None and self.template.search(template) is not None))
        )


def _compiled(rows: Sequence[Mapping[str, Any]]) -> tuple[_Rule, ...]:
    def pattern(row: Mapping[str, Any], key: str, flags: re.RegexFlag) -> re.Pattern[str] | None:
        return re.compile(row[key], flags) if key in row else None

    return tuple(
        _Rule(
            row,
            pattern(row, "name", re.IGNORECASE),
            pattern(row, "architecture", re.NOFLAG),
            pattern(row, "template", re.DOTALL),
            pattern(row, "alias", re.IGNORECASE),
        )
        for row in rows
    )


@cache
def _rules(group: str) -> tuple[_Rule, ...]:
    data = knowledge("parsers")
    return _compiled(data["rules"] if group == "rules" else data["evidence"][group])


@lru_cache(maxsize=512)
def _rule(name: str, architecture: str, template: str | None) -> Mapping[str, Any] | None:
    return next((rule.row for rule in _rules("rules") if rule.matches(name, architecture, template)), None)


@lru_cache(maxsize=512)
def _by_evidence(
    group: str, name: str, template: str | None, tokens: frozenset[str] | None
) -> Mapping[str, Any] | None:
    for rule in _rules(group):
        wanted = frozenset(rule.row.get("tokens", ()))
        missing = tokens is not None and not wanted <= tokens
        unproven = tokens is None and rule.row.get("proven", False)
        if rule.matches(name, "", template) and not missing and not unproven:
            return rule.row
    return None


def _source(row: Mapping[str, Any], form: Literal["short", "full"] = "full") -> str:
    sources = knowledge("parsers")["sources"]
    return "; ".join(sources[key][form] for key in row["source"])


def _thinking(row: Mapping[str, Any], at: str) -> str:
    value = row["thinking"]
    if isinstance(value, str):
        return value
    return next((str(entry["value"]) for entry in value if holds(entry, at)), str(value[-1]["value"]))


def _lost_its_switch(row: Mapping[str, Any], template: str | None) -> bool:
    """Whether the family thinks but this repository's template shows no trace of it: an instruct variant."""
    return template is not None and "switch" in row and row["switch"] not in template and "<think>" not in template


# --- The choice


def choose_parsers(
    checkpoint: Checkpoint,
    at: str,
    reasoning_wish: str | None = None,
    tool_wish: str | None = None,
    parser_files: Mapping[str, str] | None = None,
    strict: bool = True,
) -> Parsers:
    """The parsers for a checkpoint at a vLLM version.

    ``parser_files`` maps names of Python files in the repository to their text. ``strict`` refuses a wished
    parser that the version does not register; an image of unknown content may have more.
    """
    name, template = repository_name(checkpoint.id), template_text(checkpoint)
    tokens = _added_tokens(checkpoint)
    if parser_files is not None and not isinstance(parser_files, Mapping):
        raise InputError("model.parser_files", "expected a mapping of file names to their text")
    shipped = tuple(
        Plugin(item.kind, item.name, file)
        for file, text in (parser_files or {}).items()
        for item in registered_parsers(str(text))
    )
    rule = _rule(name, checkpoint.architecture, template)
    findings: list[Finding] = []
    if rule is not None and _lost_its_switch(rule, template):
        findings.append(_template_without_thinking(rule))
        rule = {**rule, "thinking": "none", "reasoning": []}
    elif rule is not None and "switch" in rule:
        shown = _by_evidence("reasoning", name, template, None)
        if shown is not None and shown["id"] == "closed-by-switch":
            rule = {
                **rule,
                "thinking": shown["thinking"],
                "toggle": shown["toggle"],
                "args": [*rule.get("args", ()), *shown["args"]],
            }
    by_template: dict[Kind, Mapping[str, Any]] = {}
    if rule is None:
        for kind in KINDS:
            row = _by_evidence(kind, name, template, tokens)
            if row is not None:
                by_template[kind] = row
        findings.append(_unknown_model(checkpoint, by_template))
    picks: dict[Kind, _Pick] = {
        kind: _Pick.make(kind, rule if rule is not None else by_template.get(kind), at, shipped) for kind in KINDS
    }
    speaking = rule if rule is not None else by_template.get("reasoning")
    thinking = _thinking(speaking, at) if speaking is not None else "none"
    picks["reasoning"] = picks["reasoning"].without_tokens(tokens)
    wishes: Mapping[Kind, str | None] = {"reasoning": reasoning_wish, "tool": tool_wish}
    for kind, wish in wishes.items():
        if wish is not None:
            picks[kind] = _wished(kind, wish, at, shipped, strict)
            if kind == "reasoning" and wish != "none" and thinking == "none" and rule is not None:
                findings.append(_parser_without_thinking(wish, rule))
    for pick in picks.values():
        findings.extend(pick.findings)
    family = rule if rule is not None else by_template.get("reasoning", {})
    if "notice" in family:
        findings.append(Finding(**family["notice"]))
    arguments = tuple(
        FamilyArgument(item["flag"], item["value"], item["why"])
        for item in (*family.get("args", ()), *_mistral_format(family, checkpoint))
        if holds(item, at)
    )
    return Parsers(
        rule=rule["id"] if rule is not None else None,
        thinking=thinking,
        toggle=speaking.get("toggle") if speaking is not None else None,
        reasoning=picks["reasoning"].name,
        tool=picks["tool"].name,
        chat_template=_chat_template(family, at) if picks["tool"].name else None,
        arguments=arguments,
        plugins=tuple(pick.plugin for pick in picks.values() if pick.plugin is not None),
        layers=tuple(family.get("layers", ())) if picks["reasoning"].name or picks["tool"].name else (),
        reasons={kind: pick.reason for kind, pick in picks.items()},
        findings=tuple(findings),
    )


@dataclass(frozen=True, slots=True)
class _Pick:
    name: str | None = None
    reason: str = ""
    plugin: Plugin | None = None
    findings: tuple[Finding, ...] = ()

    @classmethod
    def make(cls, kind: Kind, row: Mapping[str, Any] | None, at: str, shipped: Sequence[Plugin]) -> _Pick:
        own = [plugin for plugin in shipped if plugin.kind == kind]
        if row is None:
            # Nothing else is known about the model, so its publisher's parser is the best guess.
            return cls._shipped(own[0]) if own else cls()
        known = known_parsers(kind, at)
        wanted = _candidates(row.get(kind, ()), at)
        for name in wanted:
            if name in known:
                return cls(name, f"for {row['id']} models ({_source(row, 'short')})")
        if wanted or kind in row.get("plugin", {}):
            if own:
                return cls._shipped(own[0])
            named = row.get("plugin", {})
            if kind in named:
                return cls(findings=(_plugin_not_read(kind, named),))
            return cls(findings=(_parser_too_new(kind, wanted, at, row),))
        return cls()

    @classmethod
    def _shipped(cls, plugin: Plugin) -> _Pick:
        reason = f"{plugin.file} of the repository registers it"
        return cls(plugin.name, reason, plugin, (_runs_code(plugin),))

    def without_tokens(self, tokens: frozenset[str] | None) -> _Pick:
        """The pick, or none where the tokenizer lacks the tokens without which the parser stops the start."""
        if self.name is None or tokens is None or self.plugin is not None:
            return self
        for row in knowledge("parsers")["needs_tokens"]:
            missing = sorted(set(row["tokens"]) - tokens)
            if self.name in row["parsers"] and missing:
                return _Pick(findings=(_tokens_missing(self.name, missing, row),))
        return self


def _wished(kind: Kind, wish: str, at: str, shipped: Sequence[Plugin], strict: bool) -> _Pick:
    if wish == "none":
        return _Pick(reason="asked for")
    plugin = next((item for item in shipped if item.kind == kind and item.name == wish), None)
    if plugin is not None:
        return _Pick(wish, "asked for", plugin, (_runs_code(plugin),))
    known = known_parsers(kind, at)
    if wish not in known and strict:
        wish_name = "reasoning_parser" if kind == "reasoning" else "tool_call_parser"
        first = first_version(kind, wish)
        near = difflib.get_close_matches(wish, known, n=3)
        hint = f"it came with {first}" if first else f"near: {', '.join(near)}" if near else "see docs/serving.md"
        raise InputError(wish_name, f"expected a {kind} parser that vLLM {at} has, got {wish!r}; {hint}")
    return _Pick(wish, "asked for")


def _chat_template(row: Mapping[str, Any], at: str) -> str | None:
    held = row.get("chat_template")
    return f"{_TEMPLATE_HOME}/{held['name']}" if held is not None and holds(held, at) else None


def _mistral_format(row: Mapping[str, Any], checkpoint: Checkpoint) -> list[dict[str, str]]:
    """Mistral's own format, where the repository holds it: known only when its file names are known."""
    if not row.get("mistral_format"):
        return []
    names = {file.rsplit("/", 1)[-1] for file in checkpoint.files}
    weights = "params.json" in names and any(file.startswith("consolidated") for file in names)
    tokenizer = any(file == "tekken.json" or file.startswith("tokenizer.model.v") for file in names)
    why = "the repository holds Mistral's own format, whose tokenizer keeps the chat format"
    return [
        {"flag": flag, "value": "mistral", "why": why}
        for flag, held in (
            ("--tokenizer-mode", tokenizer),
            ("--config-format", weights),
            ("--load-format", weights),
        )
        if held
    ]


# --- Findings


def _unknown_model(checkpoint: Checkpoint, rows: Mapping[Kind, Mapping[str, Any]]) -> Finding:
    guess = ", ".join(f"{kind} by {row['id']}" for kind, row in rows.items()) or "nothing"
    return Finding(
        level="note",
        id="parsers-not-in-table",
        what=f"No row knows {checkpoint.id or checkpoint.architecture}; its chat template shows {guess}.",
        why="A wrong parser empties content or leaks tags, so only what the template proves is set.",
        fix="Look at one answer; set vllm_reasoning_parser or vllm_tool_call_parser (or none).",
        source=_SOURCE,
    )


def _template_without_thinking(row: Mapping[str, Any]) -> Finding:
    return Finding(
        level="note",
        id="template-without-thinking",
        what=f"The family thinks (row {row['id']}), but this chat template has no switch and no think tag.",
        why="With a reasoning parser on a model that never thinks, content stays null.",
        fix="None needed; vllm_reasoning_parser overrules it.",
        source=_source(row),
    )


def _parser_without_thinking(wish: str, row: Mapping[str, Any]) -> Finding:
    return Finding(
        level="warning",
        id="reasoning-parser-without-thinking",
        what=f"Reasoning parser {wish} was asked for, but the model has no think mode (row {row['id']}).",
        why="vLLM takes the whole answer for unfinished reasoning: content null, finish_reason stop.",
        fix="Remove vllm_reasoning_parser unless one answer proves the row wrong.",
        source=_source(row),
    )


def _parser_too_new(kind: Kind, wanted: Sequence[str], at: str, row: Mapping[str, Any]) -> Finding:
    first = first_version(kind, wanted[0]) or "a later version"
    return Finding(
        level="warning",
        id=f"{kind}-parser-too-new",
        what=f"The {kind} parser {wanted[0]} does not exist in vLLM {at}; none is set.",
        why="Reasoning or tool calls will show up raw in content.",
        fix=f"Use an image with vLLM {first} or newer.",
        source=_source(row),
    )


def _plugin_not_read(kind: Kind, named: Mapping[str, str]) -> Finding:
    file = named.get(f"{kind}_file", "a file of the repository")
    return Finding(
        level="warning",
        id=f"{kind}-parser-in-repository",
        what=f"The {kind} parser {named[kind]} comes as {file} in the repository, not read; none is set.",
        why="The registered name must be read from the file, and vLLM runs the file.",
        fix="Plan from the repository or the cache (not from config.json alone), after reading the file.",
        source=_SOURCE,
    )


def _runs_code(plugin: Plugin) -> Finding:
    return Finding(
        level="warning",
        id="parser-plugin-runs-code",
        what=f"{plugin.file} of the repository is loaded as {plugin.kind} parser {plugin.name}.",
        why="vLLM runs that file with the rights of the server.",
        fix=f"Read it and pin the revision, or set the {plugin.kind} parser to none.",
        source="vLLM 0.33 docs/features/tool_calling.md",
    )


def _tokens_missing(name: str, missing: Sequence[str], row: Mapping[str, Any]) -> Finding:
    return Finding(
        level="warning",
        id="reasoning-tokens-missing",
        what=f"The tokenizer lacks {' and '.join(missing)}, which parser {name} needs; none is set.",
        why="vLLM stops at the start when the tokens are missing.",
        fix="Check the tokenizer files of this mirror against the publisher's.",
        source=_source(row),
    )
