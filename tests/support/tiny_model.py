"""Tiny random models with a real tokenizer, saved as directories that serve as `--model`.

Decides their sizes only: a Llama of some ten thousand parameters and a DeepSeek-V4 whose index has
enough heads that its top-k never ties. Both are float32, made from a fixed seed, and share one
byte-level tokenizer with a chat template. May import torch, transformers and tokenizers.
"""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DeepseekV4Config,
    DeepseekV4ForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

CONTEXT_LEN = 512
BOS, EOS, TURN, TURN_END = "<s>", "</s>", "<|turn|>", "<|end|>"
CONTROL_TOKENS = (BOS, EOS, TURN, TURN_END)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)

_TEXT = (
    "The quick brown fox jumps over the lazy dog while the river runs under the old bridge.",
    "A document is read from the beginning to the end, and every answer names its source.",
    "Numbers such as 1, 23 and 456 appear in tables; names such as Ada and Grace do not.",
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of 320 tokens; the control tokens are ids 0 to 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[AddedToken(token, special=True) for token in CONTROL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,  # as SmolLM2 has it: a mask built from the pad token would be wrong
        additional_special_tokens=[TURN, TURN_END],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_LEN,
    )


@cache
def tiny_llama() -> Path:
    """Return the directory of a tiny Llama with grouped heads."""
    return save_llama()


def save_llama(**changes: Any) -> Path:
    """Save a tiny Llama whose configuration differs from the usual one by `changes`."""
    settings: dict[str, Any] = {
        "vocab_size": len(build_tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT_LEN,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
        # wide enough that greedy answers differ between prompts and do not loop at once
        "initializer_range": 0.5,
    }
    return save(LlamaForCausalLM, LlamaConfig(**(settings | changes)), "llama")


@cache
def tiny_deepseek_v4() -> Path:
    """Return the directory of a tiny DeepSeek-V4 with all three kinds of layer."""
    config = DeepseekV4Config(
        vocab_size=len(build_tokenizer()),
        hidden_size=32,
        moe_intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        head_dim=16,
        q_lora_rank=16,
        num_experts_per_tok=2,
        n_routed_experts=4,
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
        ],
        mlp_layer_types=["hash_moe", "moe", "moe"],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        partial_rotary_factor=0.5,
        max_position_embeddings=CONTEXT_LEN,
        hc_mult=2,
        sliding_window=16,
        o_groups=2,
        o_lora_rank=16,
        index_n_heads=32,  # with few heads the index top-k ties, and ties are not reproducible
        index_head_dim=16,
        index_topk=8,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        initializer_range=0.2,
    )
    return save(DeepseekV4ForCausalLM, config, "deepseek-v4")


def save(
    model_class: type[PreTrainedModel], config: Any, name: str, *, stirred: bool = False
) -> Path:
    """Build a model from a fixed seed and save it, with the tokenizer, until this process ends.

    Args:
        model_class: What is built.
        config: Its configuration.
        name: Part of the directory's name.
        stirred: Move norms, biases and sinks away from ones and zeros, so that leaving one of them
            out changes the answers.
    """
    path = Path(mkdtemp(prefix=f"docmill-tiny-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(config).float()
        if stirred:
            _stir(model)
    logging.disable_progress_bar()
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=[1, 3], pad_token_id=1)
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


def _stir(model: PreTrainedModel) -> None:
    """Add noise to what initialisation leaves alike in every place: vectors, not matrices."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
