# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One response of the server as facts: what it holds, how it ended, what it looks like.

Nothing is judged here; the rules in ``knowledge/response_rules.yml`` do that.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# What each family prints around a thought, and around a tool call, when nobody parses it.
_THINK_OPEN = re.compile(
    r"<think>|<thinking>|\[THINK\]|<seed:think>|◁think▷|<\|START_THINKING\|>|<thought>|<mm:think>"
    r"|<\|channel>thought|<longcat_think>|<reasoning>",
    re.IGNORECASE,
)
_THINK_CLOSE = re.compile(
    r"</think>|</thinking>|\[/THINK\]|</seed:think>|◁/think▷|<\|END_THINKING\|>|</thought>|</mm:think>"
    r"|</longcat_think>|</reasoning>",
    re.IGNORECASE,
)
_THINK_PROSE = re.compile(
    r"\A\s{0,20}(?:\*{0,2}(?:Thinking|Thought|Reasoning)(?: Process)?:?\*{0,2}:"
    r"|Here'?s (?:a|my) thinking process"
    r"|(?:Okay|Ok|Alright|Hmm),? (?:so )?(?:the user|I need|let me|let's)"
    r"|(?:We|I) need to (?:answer|respond|figure|count|reply|produce|output)"
    r"|The user (?:is asking|asks|wants|said|says)|First, I need to|Let me think)",
    re.IGNORECASE,
)
_HARMONY = re.compile(
    r"<\|(?:channel|start|message|return|call|constrain)\|>|assistant(?:final|commentary|analysis)(?=[A-Z\s\"'{<]|$)"
    r"|\Aanalysis(?=[A-Z])|<\|channel\|?>(?:analysis|final|commentary)"
)
_TOOL_MARKUP: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("qwen3_coder", r"<function=[\w.-]{1,80}>|<tool_call>\s{0,20}<function="),
        ("glm45", r"<arg_key>"),
        ("hermes", r"<tool_call>"),
        ("gemma4", r"<\|tool_call\|?>|<tool_call\|>"),
        ("mistral", r"\[TOOL_CALLS\]"),
        ("deepseek_v3", r"<\uff5ctool\u2581calls?\u2581begin\uff5c>|<\uff5cDSML\uff5c"),
        ("kimi_k2", r"<\|tool_calls_section_begin\|>|<\|tool_call_begin\|>"),
        ("minimax_m2", r"<minimax:tool_call>|<invoke name="),
        ("llama3_json", r"<\|python_tag\|>"),
        ("granite", r"<\|tool_call\|>"),
        ("openai", r"to=functions\.\w{1,80}"),
        ("internlm", r"<\|action_start\|>"),
        ("lfm2", r"<\|tool_call_start\|>"),
        ("phi4_mini_json", r"functools\["),
        ("seed_oss", r"<seed:tool_call>"),
        ("functiongemma", r"<start_function_call>"),
        (
            "json",
            r"\A\s{0,20}(?:```(?:json)?\s{0,8})?\[?\s{0,8}\{\s{0,8}\"(?:type\"\s{0,4}:\s{0,4}\"function"
            r"|(?:name|function|tool|tool_name|tool_calls)\"\s{0,4}:)[^\x00]{0,400}?\"(?:parameters|arguments|args|name|tool_input)\"",
        ),
        ("pythonic", r"\A\s{0,20}\[\s{0,8}[A-Za-z_]\w{0,60}\((?:\w{1,40}\s{0,4}=[^()]{0,300})?\)"),
    )
)
_SPECIAL = re.compile(
    r"<\|im_(?:end|start)\|>|<\|endoftext\|>|<\|eot_id\|>|<\|end_of_text\|>|<\|eom_id\|>|<\|(?:user|assistant|observation)\|>"
    r"|<(?:end|start)_of_turn>|<\uff5cend\u2581of\u2581sentence\uff5c>|\[/?INST\]|</s>|<\|end\|>"
)
_WORD = re.compile(r"\S+")
_RUN = re.compile(r"(.{1,40}?)\1{7,}", re.DOTALL)
_MAX_TOKENS = re.compile(r"max(?:_completion)?_tokens\"?[ =:]{1,3}(\d{1,7})")
_STATUS = re.compile(r"\b([45]\d\d)\b")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):  # content parts
        return "".join(str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in value)
    return "" if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def repetition(text: str) -> float:
    """Share of a text that is one short piece said again and again, between 0 and 1."""
    sample = text[-4000:].strip()
    if len(sample) < 24:
        return 0.0
    shares = [len(run[0]) / len(sample) for run in _RUN.finditer(sample) if len(run[0]) >= 20]
    words = _WORD.findall(sample)
    for size in (2, 3, 5, 8) if len(words) >= 24 else ():
        grams = Counter(tuple(words[place : place + size]) for place in range(len(words) - size + 1))
        shares.append((grams.most_common(1)[0][1] - 1) * size / len(words))
    return round(min(1.0, max(shares, default=0.0)), 3)


def scripts(text: str) -> int:
    """How many writing systems a text mixes; a handful in one short answer is noise, not language."""
    seen: Counter[str] = Counter()
    for letter in text[:4000]:
        if letter.isalpha():
            seen[unicodedata.name(letter, "UNKNOWN").split()[0]] += 1
    total = sum(seen.values())
    return sum(1 for count in seen.values() if total >= 30 and count >= max(2, total * 0.01))


def _lost_spaces(text: str) -> bool:
    letters = sum(1 for letter in text if "a" <= letter.lower() <= "z")
    spaces = sum(1 for letter in text if letter.isspace())
    return letters >= 40 and letters / max(1, len(text)) > 0.6 and spaces / len(text) < 0.02


def _looks(facts: dict[str, Any], content: str, reasoning: str) -> None:
    both = f"{content}\n{reasoning}"
    facts["think_open"] = bool(_THINK_OPEN.search(content))
    facts["think_close"] = bool(_THINK_CLOSE.search(content))
    facts["think_prose"] = bool(_THINK_PROSE.search(content))
    facts["harmony"] = bool(_HARMONY.search(content))
    facts["tool_markup"] = next((name for name, pattern in _TOOL_MARKUP if pattern.search(content)), "")
    facts["tool_markup_in_reasoning"] = next(
        (name for name, pattern in _TOOL_MARKUP if name not in ("json", "pythonic") and pattern.search(reasoning)),
        "",
    )
    facts["special_tokens"] = match[0] if (match := _SPECIAL.search(content)) else ""
    facts["byte_markers"] = both.count("\u0120") + both.count("\u010a")
    facts["lost_spaces"] = _lost_spaces(content) or _lost_spaces(reasoning)
    facts["replacement_characters"] = both.count("\ufffd")
    facts["repetition"] = max(repetition(content), repetition(reasoning))
    facts["scripts"] = scripts(both)


def _logprobs(choice: Mapping[str, Any]) -> dict[str, Any]:
    parts = choice.get("logprobs")
    entries = parts.get("content") if isinstance(parts, Mapping) else None
    figures = [float(entry["logprob"]) for entry in entries or () if isinstance(entry, Mapping) and "logprob" in entry]
    if not figures:
        return {}
    return {"mean_logprob": round(sum(figures) / len(figures), 3), "logprob_tokens": len(figures)}


def _error(body: Mapping[str, Any]) -> tuple[str, Any, str] | None:
    """Message, code and type of an error body in any of the forms vLLM, its proxies and FastAPI give."""
    error = body.get("error")
    if isinstance(error, Mapping):
        return _text(error.get("message")), error.get("code"), _text(error.get("type"))
    if isinstance(error, str):
        return error, body.get("code") or body.get("status"), _text(body.get("type"))
    if body.get("object") == "error" or ("message" in body and "choices" not in body):
        return _text(body.get("message")), body.get("code") or body.get("status"), _text(body.get("type"))
    if "detail" in body and "choices" not in body:
        detail = body["detail"]
        return detail if isinstance(detail, str) else json.dumps(detail), body.get("status"), "detail"
    return None


def _asked(request: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    if limit is None and (match := _MAX_TOKENS.search(str(config.get("flags", "")))):
        limit = match[1]
    if str(limit).isdigit():
        facts["max_tokens"] = int(str(limit))
    switch = request.get("chat_template_kwargs")
    told = f"{json.dumps(switch) if isinstance(switch, Mapping) else ''} {config.get('flags', '')}"
    if re.search(r"(?:enable_thinking|thinking)\"?[ :=]{1,3}(?:\\?\")?false", told, re.IGNORECASE):
        facts["thinking_off"] = True
    elif re.search(r"(?:enable_thinking|thinking)\"?[ :=]{1,3}(?:\\?\")?true", told, re.IGNORECASE):
        facts["thinking_off"] = False
    messages = request.get("messages")
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        prompt = "\n".join(_text(message.get("content")) for message in messages if isinstance(message, Mapping))
        facts["soft_switch"] = "/no_think" in prompt
        facts["tool_result_sent"] = any(
            isinstance(message, Mapping) and message.get("role") == "tool" for message in messages
        )
    facts["stop_sent"] = bool(request.get("stop"))
    facts["tools_sent"] = bool(request.get("tools"))
    if request.get("tool_choice") is not None:
        facts["tool_choice"] = _text(request["tool_choice"])
    if request.get("response_format") or request.get("guided_json") or request.get("structured_outputs"):
        facts["schema_sent"] = True
    if request.get("model"):
        facts["model_asked"] = request["model"]
    return facts


def joined(chunks: Sequence[Any]) -> dict[str, Any]:
    """The pieces of a stream as one completion."""
    content, reasoning = "", ""
    calls: list[Any] = []
    whole: dict[str, Any] = {}
    for chunk in chunks:
        if not isinstance(chunk, Mapping):
            continue
        whole.update({name: chunk[name] for name in ("model", "usage", "error") if chunk.get(name)})
        for choice in map(_mapping, _sequence(chunk.get("choices"))):
            delta = _mapping(choice.get("delta") or choice.get("message"))
            content += _text(delta.get("content"))
            reasoning += _text(delta.get("reasoning") or delta.get("reasoning_content"))
            calls += _sequence(delta.get("tool_calls"))
            whole["finish"] = choice.get("finish_reason") or whole.get("finish")
    message = {"content": content or None, "reasoning": reasoning or None, "tool_calls": calls[:1]}
    return {**whole, "choices": [{"message": message, "finish_reason": whole.pop("finish", None)}]}


def _read(text: str) -> Any:
    """A body as JSON, or a stream of server-sent events; None when it is neither."""
    try:
        return json.loads(text)
    except ValueError:
        pieces = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    try:
        return joined([json.loads(piece) for piece in pieces if piece and piece != "[DONE]"]) if pieces else None
    except ValueError:
        return None


def response_facts(response: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a chat-completion body, a completion body, a list of stream chunks or an error body."""
    if isinstance(response, str):
        body = _read(response)
        if body is None:
            status = _STATUS.search(response[:200])
            return {
                "kind": "error",
                "error": response[:4000],
                "status": status[1] if status else "",
                "error_type": "",
            }
        response = body
    if isinstance(response, list | tuple) and response:
        response = joined(response)
    if not isinstance(response, Mapping):
        return {"kind": "empty"} if not response else {"kind": "unknown"}
    request = response.get("request") or config.get("request") or {}
    facts: dict[str, Any] = _asked(request if isinstance(request, Mapping) else {}, config)
    inner = response.get("response") or response.get("body")
    if isinstance(inner, Mapping) and "choices" not in response:
        response = {**response, **inner}
    error = _error(response)
    if error is not None:
        told, code, kind = error
        return {
            **facts,
            "kind": "error",
            "error": told[:4000],
            "error_type": kind,
            "status": str(code if code is not None else response.get("status_code", "")),
        }
    choices = response.get("choices")
    facts["model_answered"] = response.get("model", "")
    if choices == [] and response.get("usage") and str(response.get("object", "")).endswith(".chunk"):
        return {**facts, "kind": "usage"}  # the last piece of a stream carries no choice
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        return {
            **facts,
            "kind": "empty" if choices is not None or not response else "unknown",
            "choices": 0 if choices is not None else -1,
        }
    choice = choices[0] if isinstance(choices[0], Mapping) else {}
    message = next((part for name in ("message", "delta") if isinstance(part := choice.get(name), Mapping)), choice)
    content_raw = message.get("content", choice.get("text"))
    content = _text(content_raw)
    reasoning = _text(message.get("reasoning") or message.get("reasoning_content"))
    usage = response.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    calls = message.get("tool_calls") or []
    finish = choice.get("finish_reason", response.get("finish_reason"))
    facts.update(
        kind="completion",
        choices=len(choices),
        content=content,
        content_null=content_raw is None,
        content_empty=not content.strip(),
        reasoning=reasoning,
        has_reasoning=bool(reasoning.strip()),
        reasoning_field="reasoning"
        if message.get("reasoning")
        else "reasoning_content"
        if message.get("reasoning_content")
        else "",
        finish=_text(finish),
        tool_calls=len(calls) if isinstance(calls, Sequence) else 0,
    )
    if message.get("function_call"):
        facts["tool_calls"] = max(1, facts["tool_calls"])
    for call in calls if isinstance(calls, Sequence) else ():
        arguments = call.get("function", {}).get("arguments") if isinstance(call, Mapping) else None
        if isinstance(arguments, str):
            try:
                json.loads(arguments or "{}")
            except ValueError:
                facts["tool_arguments_broken"] = arguments[:200]
    for name in ("completion_tokens", "prompt_tokens"):
        if isinstance(usage.get(name), int):
            facts[name] = usage[name]
    if "max_tokens" in facts and "completion_tokens" in facts:
        facts["at_budget"] = facts["completion_tokens"] >= 0.97 * facts["max_tokens"]
    facts.update(_logprobs(choice))
    if facts.get("schema_sent") and content.strip():
        try:
            json.loads(content)
            facts["json_ok"] = True
        except ValueError:
            facts["json_ok"] = False
    _looks(facts, content, reasoning)
    return facts
