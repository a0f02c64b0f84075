"""Tiny models whose tokens all go through the same weights.

Decides what each one adds to plain causal attention: biases, norms of queries and keys, windows,
soft caps, fused projections, learned positions. May import transformers and tests.support.
"""

from functools import cache
from pathlib import Path
from typing import Any

from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.support.tiny_model import CONTEXT_LEN, save
from tests.support.tiny_models.shape import ALTERNATING, SHAPE, WINDOW


@cache
def llama() -> Path:
    """Grouped heads, rotary positions, a gated feed-forward layer."""
    return save(LlamaForCausalLM, LlamaConfig(**SHAPE), "llama", stirred=True)


@cache
def qwen2() -> Path:
    """Biases on queries, keys and values; embeddings that are the output head too."""
    config = Qwen2Config(**SHAPE | {"initializer_range": 0.25}, tie_word_embeddings=True)
    return save(Qwen2ForCausalLM, config, "qwen2", stirred=True)


@cache
def qwen3() -> Path:
    """Norms of queries and keys, and heads that are wider than the hidden size has room for."""
    config = Qwen3Config(**SHAPE | {"head_dim": 16})
    return save(Qwen3ForCausalLM, config, "qwen3", stirred=True)


@cache
def mistral() -> Path:
    """A sliding window in every layer."""
    config = MistralConfig(**SHAPE, sliding_window=WINDOW)
    return save(MistralForCausalLM, config, "mistral", stirred=True)


@cache
def phi3() -> Path:
    """One projection for queries, keys and values, one for gate and up; half-rotated heads."""
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    config = Phi3Config(**SHAPE, rope_parameters=rope)
    return save(Phi3ForCausalLM, config, "phi3", stirred=True)


_GEMMA: dict[str, Any] = SHAPE | {
    "num_hidden_layers": len(ALTERNATING),
    "layer_types": ALTERNATING,
    "tie_word_embeddings": False,  # scaled and tied embeddings say the same token for ever
    "sliding_window": WINDOW,
    "query_pre_attn_scalar": 8,
}


@cache
def gemma2() -> Path:
    """Soft caps on attention and on the scores; sliding and full layers in turn."""
    config = Gemma2Config(
        **_GEMMA,
        attn_logit_softcapping=5.0,  # low enough to bend what these small heads compute
        final_logit_softcapping=30.0,
    )
    return save(Gemma2ForCausalLM, config, "gemma2", stirred=True)


@cache
def gemma3() -> Path:
    """Sliding and full layers in turn, each kind with a rotary base of its own."""
    config = Gemma3TextConfig(**_GEMMA)
    return save(Gemma3ForCausalLM, config, "gemma3", stirred=True)


@cache
def gpt2() -> Path:
    """Learned positions, one projection for queries, keys and values, biases throughout."""
    config = GPT2Config(
        vocab_size=SHAPE["vocab_size"],
        n_positions=CONTEXT_LEN,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        initializer_range=SHAPE["initializer_range"],
        tie_word_embeddings=False,  # tied ones say the same token for ever
    )
    return save(GPT2LMHeadModel, config, "gpt2", stirred=True)
