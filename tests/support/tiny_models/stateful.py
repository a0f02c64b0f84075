"""Tiny models that keep something other than one key and value per token.

Decides their layer types: each model has all that its architecture knows. May import transformers
and tests.support.
"""

from functools import cache
from pathlib import Path

from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

from tests.support.tiny_model import save, tiny_deepseek_v4
from tests.support.tiny_models.shape import SHAPE


def deepseek_v4() -> Path:
    """Sliding, compressed sparse and heavily compressed attention, hashed and routed experts."""
    return tiny_deepseek_v4()


@cache
def qwen3_next() -> Path:
    """A recurrent state and a convolution's in two layers, attention between them; experts."""
    config = Qwen3NextConfig(
        **SHAPE | {"num_hidden_layers": 3, "initializer_range": 0.15},
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_conv_kernel_dim=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        num_experts=4,
        num_experts_per_tok=2,
    )
    return save(Qwen3NextForCausalLM, config, "qwen3-next", stirred=True)
