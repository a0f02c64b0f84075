"""What the tiny models have in common.

Decides their usual sizes: two layers, four heads of eight dimensions over two key heads, and a
window of 16 tokens where there is one, shorter than most prompts of the tests. May import
tests.support.tiny_model.
"""

from typing import Any

from tests.support.tiny_model import CONTEXT_LEN

WINDOW = 16

SHAPE: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT_LEN,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    # wide enough that answers differ and do not loop, narrow enough that every token of a prompt
    # counts: one changed 100 tokens back moves the scores by a hundredth, rounding by a millionth
    "initializer_range": 0.2,
}

#: Layers in turn, so that each kind reads what the other has written.
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
