"""Tiny models whose answers depend on what else is computed.

Decides how rows get mixed up: through the tokens of a pass, as experts that take the best tokens of
all do, or through the rows of a batch. Their configurations look like any other model's. May
import torch, transformers and tests.support.
"""

from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tests.support.tiny_model import save
from tests.support.tiny_models.shape import SHAPE


class MixedTokensConfig(LlamaConfig):
    """A Llama's, under a name of its own."""

    model_type = "mixed-tokens"


class MixedTokensForCausalLM(LlamaForCausalLM):
    """Every token is computed less the mean of all tokens of the pass."""

    config_class = MixedTokensConfig

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute scores; see the class."""
        embeddings = self.get_input_embeddings()(kwargs.pop("input_ids"))
        mixed = embeddings - embeddings.mean(dim=(0, 1), keepdim=True)
        return super().forward(*args, inputs_embeds=mixed, **kwargs)


class MixedRowsConfig(LlamaConfig):
    """A Llama's, under a name of its own."""

    model_type = "mixed-rows"


class MixedRowsForCausalLM(LlamaForCausalLM):
    """Every row is computed less the mean of all rows; its attention cannot be replaced."""

    config_class = MixedRowsConfig
    _supports_attention_backend = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute scores; see the class."""
        embeddings = self.get_input_embeddings()(kwargs.pop("input_ids"))
        mixed = 2 * embeddings - embeddings.mean(dim=0, keepdim=True)
        return super().forward(*args, inputs_embeds=mixed, **kwargs)


for config, model in (
    (MixedTokensConfig, MixedTokensForCausalLM),
    (MixedRowsConfig, MixedRowsForCausalLM),
):
    AutoConfig.register(config.model_type, config)
    AutoModelForCausalLM.register(config, model)


@cache
def mixed_tokens() -> Path:
    """Tokens of one pass change each other."""
    return save(MixedTokensForCausalLM, MixedTokensConfig(**SHAPE), "mixed-tokens")


@cache
def mixed_rows() -> Path:
    """Rows of one batch change each other."""
    return save(MixedRowsForCausalLM, MixedRowsConfig(**SHAPE), "mixed-rows")
