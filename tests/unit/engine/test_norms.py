"""Replaced normalisations compute what the original ones do."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from engine.norms import RmsNorm, replace_norms


class OnePlusWeight(LlamaRMSNorm):
    """The same parts, other arithmetic: the weight is an offset from one."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Normalise."""
        once: Tensor = super().forward(hidden_states)
        return once + once / self.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_llamas_normalisation_is_replaced_by_its_equal(dtype: torch.dtype, scale: float) -> None:
    """Up to one rounding of the variance, in whatever range the values are; inputs stay as is."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(LlamaRMSNorm(48, eps=1e-5)).to(dtype).requires_grad_(False)
    model[0].weight.normal_()
    hidden = (torch.randn(1, 7, 48) * scale).to(dtype)
    before, expected = hidden.clone(), model(hidden)

    replace_norms(model)

    assert isinstance(model[0], RmsNorm)
    # one unit in the last place of bf16 is 2^-8 of the value
    tolerance = 1e-5 if dtype is torch.float32 else 2**-7
    assert torch.allclose(model(hidden), expected, rtol=tolerance, atol=0.0)
    assert torch.equal(before, hidden)


@pytest.mark.parametrize(
    "norm", [GemmaRMSNorm(16), OnePlusWeight(16), nn.LayerNorm(16), nn.Linear(16, 16)]
)
def test_other_modules_are_left_alone(norm: nn.Module) -> None:
    """Whatever computes something else keeps its own code."""
    model = nn.Sequential(norm)

    replace_norms(model)

    assert model[0] is norm
