"""Tiny models whose tokens choose among experts.

Decides their number of experts, few, and what else each adds: sinks, or keys and values from one
small latent. May import transformers and tests.support.
"""

from functools import cache
from pathlib import Path

from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.support.tiny_model import save
from tests.support.tiny_models.shape import ALTERNATING, SHAPE, WINDOW


@cache
def qwen3_moe() -> Path:
    """Two of four experts per token."""
    config = Qwen3MoeConfig(
        **SHAPE, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True
    )
    return save(Qwen3MoeForCausalLM, config, "qwen3-moe", stirred=True)


@cache
def gpt_oss() -> Path:
    """A sink in each head, sliding and full layers in turn, experts with biases."""
    config = GptOssConfig(
        **SHAPE | {"num_hidden_layers": len(ALTERNATING)},
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=WINDOW,
        layer_types=ALTERNATING,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    return save(GptOssForCausalLM, config, "gpt-oss", stirred=True)


@cache
def deepseek_v3() -> Path:
    """Keys and values from one latent, unlike in width; groups of experts and a shared one."""
    config = DeepseekV3Config(
        **{key: value for key, value in SHAPE.items() if key != "head_dim"}
        | {"num_key_value_heads": 4},
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=12,
        moe_intermediate_size=16,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
    )
    return save(DeepseekV3ForCausalLM, config, "deepseek-v3", stirred=True)
