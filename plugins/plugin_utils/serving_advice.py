# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the user should know about a command line that is right: budgets, templates, drafts, layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .checkpoint import Checkpoint
from .engine import Engine
from .findings import Finding
from .flags import needs_draft_model
from .images import Image, layer
from .knowledge import knowledge
from .parsers import Parsers, template_text
from .placement import Node, Placement
from .versions import holds
from .wishes import Wishes


def thinking_advice(parsers: Parsers, engine: Engine, nodes: int) -> Iterator[Finding]:
    if parsers.thinking not in ("on", "always", "adaptive"):
        return
    row = knowledge("serving")["reasoning_budget"]
    budget = row["several"] if nodes > 1 else row["single"]
    switch = f" Thinking is switched with {parsers.toggle}." if parsers.toggle else ""
    yield Finding(
        level="note",
        id="reasoning-budget",
        what=f"The model thinks before it answers; give a request max_tokens of {budget} or more.",
        why="A budget spent in thought ends with content null and finish_reason length.",
        fix=f"Set max_tokens in the client, at most the context of {engine.context}.{switch}",
        source=row["source"],
    )
    if engine.context < budget:
        yield Finding(
            level="warning",
            id="context-below-reasoning-budget",
            what=f"The context of {engine.context} is shorter than a thinking answer ({budget} tokens).",
            why="Prompt, thought and answer share the context.",
            fix="Set vllm_context higher, or switch thinking off.",
            source=row["source"],
        )
    if parsers.reasoning is None:
        yield Finding(
            level="warning",
            id="thinking-without-parser",
            what="The model thinks, but no reasoning parser is set: its thoughts will stand in content.",
            why="No parser of this version is known to fit.",
            fix="Look at one answer; set vllm_reasoning_parser if the tags fit one.",
            source="knowledge/parsers.yml",
        )


def _listing(checkpoint: Checkpoint) -> frozenset[str]:
    """The names of the repository's files; empty unless the listing is whole, weights included."""
    names = frozenset(file.rsplit("/", 1)[-1] for file in checkpoint.files)
    return names if any(name.endswith(".safetensors") for name in names) else frozenset()


def tokenizer_advice(checkpoint: Checkpoint, at: str, users: set[str]) -> Iterator[Finding]:
    """Tokenizers whose blanks and line ends get lost with transformers 5."""
    row, names = knowledge("serving")["byte_level_tokenizers"], _listing(checkpoint)
    named = checkpoint.tokenizer_config.get("tokenizer_class")
    if named not in row["classes"] or not holds(row, at) or "--tokenizer" in users:
        return
    if "tokenizer.json" in names and "tokenizer.model" not in names:
        yield Finding(
            level="warning",
            id="byte-level-tokenizer-class",
            what=f"tokenizer_config.json says {named}, but the tokenizer is a byte-level one.",
            why="transformers 5 takes the wrong decoder then: prompts lose blanks, answers show Ġ and Ċ.",
            fix="Look at one answer; if it shows them, give --tokenizer a copy of the tokenizer files whose "
            "tokenizer_class is PreTrainedTokenizerFast, through vllm_extra_args.",
            source=row["source"],
        )


def template_advice(checkpoint: Checkpoint, parsers: Parsers, users: set[str]) -> Iterator[Finding]:
    own_format = {argument.flag for argument in parsers.arguments} | users
    # Only a whole listing can show that a file is not there.
    names = _listing(checkpoint)
    looked = bool(checkpoint.tokenizer_config) and bool(names)
    shipped = any(name.startswith("chat_template") for name in names)
    if (
        looked
        and not shipped
        and not template_text(checkpoint)
        and parsers.chat_template is None
        and not own_format & {"--tokenizer-mode", "--chat-template"}
    ):
        yield Finding(
            level="warning",
            id="no-chat-template",
            what="The repository has no chat template; /v1/chat/completions will refuse every request.",
            why="It is a base checkpoint, or a mirror that lost the file.",
            fix="Choose the instruct variant, use /v1/completions, or add --chat-template to extra_args.",
            source="vLLM 0.33.0 docs/serving/openai_compatible_server.md",
        )


def speculative_advice(wishes: Wishes) -> Iterator[Finding]:
    asked = wishes.speculative
    if asked is not None and asked.model is None and needs_draft_model(asked.method):
        yield Finding(
            level="warning",
            id="draft-model-not-named",
            what=f"Speculative method {asked.method} needs a draft model, and none is named.",
            why="vLLM stops at the start without it; its memory is planned from draft_weight_bytes.",
            fix="Name it: vllm_speculative: {method: ..., num_tokens: ..., model: owner/name}.",
            source="vLLM 0.33.0 config/speculative.py",
        )


def layer_advice(image: Image, placement: Placement, nodes: int) -> Iterator[Finding]:
    if nodes < 2 or placement.launcher != "ray":
        return
    if layer("ray", image.version) is None:
        return
    if image.stock or image.ngc:
        yield Finding(
            level="note",
            id="ray-layer",
            what=f"Ray is added to {image.reference} in a derived image.",
            why="vLLM's images have held no Ray since 0.18.",
            fix="Set vllm_launcher to mp to use the image as it is.",
            source="vLLM 0.18.0 requirements; docs/serving/parallelism_scaling.md",
        )
    else:
        yield Finding(
            level="warning",
            id="ray-in-image-unknown",
            what=f"Launcher ray needs Ray in {image.reference}; nothing tells whether it is there.",
            why="vLLM's own images have held no Ray since 0.18; nothing is added to images built elsewhere.",
            fix="Check with `docker run --rm --entrypoint ray IMAGE --version`, or set vllm_launcher to mp.",
            source="vLLM 0.18.0 requirements",
        )


def address_advice(placement: Placement, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What a plan for several nodes leaves out because nobody has looked at the fabric."""
    unknown = [node.name for node in nodes if not (node.fabric_address and node.fabric_interface)]
    if len(nodes) < 2 or not unknown:
        return
    head = "" if placement.launcher == "ray" else ", --master-addr"
    yield Finding(
        level="note",
        id="fabric-addresses-unknown",
        what=f"The fabric's address or interface is unknown for {', '.join(unknown)}.",
        why=f"VLLM_HOST_IP and the interface variables{head} are left out; the nodes would meet on the LAN.",
        fix="Plan with the nodes' facts, or give fabric_address and fabric_interface with each node.",
        source="vLLM 0.33.0 utils/network_utils.py",
    )
