# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The figures that memory and command line share: context, sequences, batched tokens, KV dtype, launcher.

Each is the user's wish, or the model family's need, or the launch template's default, and says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .checkpoint import Checkpoint, InputError
from .findings import Finding
from .flags import asks_rope_scaling, check_value
from .images import MP_SINCE, Image
from .knowledge import knowledge
from .parsers import choose_parsers
from .versions import version
from .wishes import Wishes


@dataclass(frozen=True, slots=True)
class Engine:
    """The figures that memory and command line share; ``reasons`` by flag."""

    context: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_dtype: str
    prefix_caching: bool | None
    reasons: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def engine_settings(checkpoint: Checkpoint, wishes: Wishes, image: Image) -> Engine:
    """Context, sequences, batched tokens and KV dtype: wished, or the launch template's, or the family's."""
    defaults = knowledge("serving")["defaults"]
    context, context_why, findings = choose_context(checkpoint, wishes, image.version)
    reasons = {"--max-model-len": context_why}
    seqs = wishes.max_num_seqs
    if seqs is not None:
        reasons["--max-num-seqs"] = "asked for with max_num_seqs"
    elif wishes.concurrency is not None and wishes.concurrency > defaults["max_num_seqs"]["value"]:
        seqs, reasons["--max-num-seqs"] = wishes.concurrency, "the asked concurrency"
    else:
        seqs, reasons["--max-num-seqs"] = _default("max_num_seqs")
    batched = wishes.max_num_batched_tokens
    if batched is not None:
        reasons["--max-num-batched-tokens"] = "asked for with max_num_batched_tokens"
    else:
        batched, reasons["--max-num-batched-tokens"] = _default("max_num_batched_tokens")
        batched = max(batched, seqs)
    dtype, dtype_why, dtype_findings = _kv_cache_dtype(checkpoint, wishes, image)
    if dtype_why:
        reasons["--kv-cache-dtype"] = dtype_why
    return Engine(context, seqs, batched, dtype, wishes.prefix_caching, reasons, (*findings, *dtype_findings))


def _default(name: str) -> tuple[int, str]:
    row = knowledge("serving")["defaults"][name]
    return int(row["value"]), str(row["why"])


def choose_context(checkpoint: Checkpoint, wishes: Wishes, at: str) -> tuple[int, str, tuple[Finding, ...]]:
    """Tokens of context, why, and what to know. InputError for a context beyond the native one.

    vLLM refuses more than the config derives unless rope scaling is set or VLLM_ALLOW_LONG_MAX_MODEL_LEN is
    (config/model.py, _get_and_verify_max_len, 0.33).
    """
    native, default = checkpoint.native_context, knowledge("serving")["defaults"]["context"]
    if wishes.context is None:
        if native is not None and native < default["value"]:
            return native, f"the model's native context, shorter than the usual {default['value']}", ()
        return default["value"], default["why"], () if native is not None else (_native_unknown(),)
    why = "asked for with context"
    if native is None:
        return wishes.context, why, (_native_unknown(),)
    if wishes.context <= native:
        return wishes.context, why, ()
    if asks_rope_scaling(wishes.extra_args, at):
        return wishes.context, f"{why}, rope scaling with extra_args", (_stretched(wishes.context, native),)
    if wishes.extra_env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        return wishes.context, f"{why}, allowed with extra_env", (_stretched(wishes.context, native),)
    raise InputError(
        "context",
        f"expected at most {native}, the model's native context, got {wishes.context}; for more, set rope "
        "scaling with extra_args, as --hf-overrides '{\"rope_parameters\": {...}}'",
    )


def _kv_cache_dtype(checkpoint: Checkpoint, wishes: Wishes, image: Image) -> tuple[str, str, tuple[Finding, ...]]:
    arguments = choose_parsers(checkpoint, image.version).arguments
    family = next((item for item in arguments if item.flag == "--kv-cache-dtype"), None)
    wished = wishes.kv_cache_dtype
    if wished is None:
        return (family.value, family.why, ()) if family else ("auto", "", ())
    findings = check_value("kv_cache_dtype", "--kv-cache-dtype", wished, image.version, image.exact)
    if family and not wished.startswith(family.value):
        findings = (*findings, _against_the_family(wished, family.value, family.why))
    return wished, "asked for with kv_cache_dtype", findings


def check_layout(checkpoint: Checkpoint, tensor: int, launcher: str, nodes: int, at: str) -> None:
    """InputError when a version cannot run the asked layout: heads that do not divide, mp before 0.12."""
    heads = checkpoint.text.get("num_attention_heads")
    if tensor > 1 and isinstance(heads, int) and heads % tensor:
        raise InputError(
            "placement", f"expected a number of nodes that divides the {heads} attention heads, got {tensor}"
        )
    if nodes > 1 and launcher == "mp" and version(at) < version(MP_SINCE):
        raise InputError(
            "launcher", f"expected ray: mp crosses nodes from vLLM {MP_SINCE} on, and the image holds {at}"
        )


def _native_unknown() -> Finding:
    return Finding(
        level="warning",
        id="native-context-unknown",
        what="The config does not tell the model's native context.",
        why="vLLM refuses a context beyond what it derives itself, and answers beyond it are noise.",
        fix="Set vllm_context to what the model card says.",
        source="vLLM 0.33.0 config/model.py _get_and_verify_max_len",
    )


def _stretched(context: int, native: int) -> Finding:
    return Finding(
        level="warning",
        id="context-beyond-native",
        what=f"The context {context} is stretched beyond the native {native}.",
        why="Rope scaling costs quality, for short prompts too.",
        fix=f"Set vllm_context to {native} or less unless you need more.",
        source="vLLM 0.33.0 config/model.py _get_and_verify_max_len",
    )


def _against_the_family(wished: str, needed: str, why: str) -> Finding:
    return Finding(
        level="warning",
        id="kv-cache-dtype-against-the-family",
        what=f"kv_cache_dtype {wished} was asked for; the family runs with {needed}.",
        why=f"The recipe sets {needed}: {why}.",
        fix=f"Leave vllm_kv_cache_dtype out, or set it to {needed}.",
        source="vllm-project/recipes 8959cf64",
    )
