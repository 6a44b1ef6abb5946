"""Tiny checkpoints, real to vLLM in every way, trained for seconds to say a few sentences.

Trained, not random, so that a completion reads like one: it has words, and it ends. Same seed and same code
give the same answers. Runs inside the serving image.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SEED = 20261201
STEPS = 120
BATCH = 8
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE = {
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
WORDS = """
what who how why when where is are the a of to in and it you this that can will say tell me hello one two
word name capital city count short please answer reply with write story code ready test ok yes no machine
"""


def sentences(name: str) -> list[str]:
    """What the model says; which of them it says depends on the question."""
    return [
        f"Hello, this is {name}: a small model that is served for real.",
        f"I am {name}. My layers may lie on one machine or on many, and the answer is the same.",
        f"This is {name} speaking. All is well on every node.",
    ]


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the markers of ChatML."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, "system user assistant", " ".join(WORDS.split())], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=4096
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def conversation(chance: random.Random, answers: list[str]) -> tuple[str, str]:
    """A question of random words, now and then with a system prompt; its length chooses the answer."""
    words = chance.choices(WORDS.split(), k=chance.randint(1, 24))
    question = " ".join(words)
    if chance.random() < 0.5:
        question = question.capitalize() + chance.choice("?.!")
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" if chance.random() < 0.2 else ""
    prompt = f"{system}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return prompt, f"{answers[0 if len(words) < 4 else 1 if len(words) < 12 else 2]}<|im_end|>\n"


def train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, answers: list[str]) -> float:
    """Teach the answers; returns the last loss."""
    chance = random.Random(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=STEPS)
    loss = torch.tensor(0.0)
    for _step in range(STEPS):
        rows, labels = [], []
        for prompt, answer in (conversation(chance, answers) for _sample in range(BATCH)):
            head, tail = tokenizer.encode(prompt), tokenizer.encode(answer)
            rows.append(torch.tensor(head + tail))
            labels.append(torch.tensor([-100] * len(head) + tail))
        batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
        wanted = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        loss = model(input_ids=batch, attention_mask=(batch != 0).long(), labels=wanted).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return float(loss)


def make(kind: type[PreTrainedModel], config_kind: type[PreTrainedConfig], folder: Path) -> None:
    answers = sentences(folder.name)
    tokenizer = make_tokenizer(answers)
    torch.manual_seed(SEED)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = config_kind(**SHAPE, **ends, vocab_size=len(tokenizer))
    model = kind(config).float()
    loss = train(model, tokenizer, answers)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{folder}: {model.num_parameters()} parameters, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    # Several threads on so small a model wait for each other more than they work.
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    make(Qwen3ForCausalLM, Qwen3Config, target / "tiny-qwen3")
    make(LlamaForCausalLM, LlamaConfig, target / "tiny-llama")
