"""A small tokenizer directory like SmolLM2's: byte-level, ChatML, markup among its control tokens.

Needs neither torch nor transformers, so that the tests of preparation stay light.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<filename>")
#: Added, but not called special by the file; the chat template does not write it.
HARMLESS_TOKEN = "<h1>"
#: Added and not called special, but the chat template writes it.
THINK_TOKEN = "<think>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    "{% if enable_thinking %}{{ '<think>' }}{% endif %}"
)
_TEXT = (
    "The pump house log for week 1 lists three valves, two of them sealed.",
    "Summarise this:\n\nThe marker is printed as is, then the text goes on.",
)


@cache
def build_tokenizer() -> Tokenizer:
    """Train the byte-level BPE of 400 tokens; the same on every call."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(token, special=True) for token in CONTROL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    tokenizer.add_tokens([HARMLESS_TOKEN, THINK_TOKEN])
    # as somebody's training run leaves it in the file: must not cut or pad our documents
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(length=16)
    return tokenizer


def decode(token_ids: Iterable[int]) -> str:
    """Return the text of tokens, control tokens included."""
    text: str = build_tokenizer().decode(list(token_ids), skip_special_tokens=False)
    return text


def write_tokenizer(directory: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """Write the tokenizer's files into `directory` and return it."""
    build_tokenizer().save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}}
    if chat_template is not None:
        config["chat_template"] = chat_template
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
