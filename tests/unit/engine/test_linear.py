"""Replaced layers compute what the original ones do."""

from typing import Any

import pytest
import torch
from torch import nn

from engine.linear import GatedMlp, PackedLinear, can_prepack, prepack


class Mlp(nn.Module):
    """A gated MLP as most models have it."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(24, 40), nn.Linear(24, 40)
        self.down_proj = nn.Linear(40, 24, bias=False)
        self.act_fn = activation

    def forward(self, hidden: Any) -> Any:
        """Compute the MLP."""
        return self.down_proj(self.act_fn(self.gate_proj(hidden)) * self.up_proj(hidden))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 65])
def test_a_prepacked_mlp_computes_the_same(dtype: torch.dtype, rows: int) -> None:
    """Only rounding differs: fp32 sums in another order, bf16 rounds less often."""
    if not can_prepack(dtype, torch.device("cpu")):
        pytest.skip(f"oneDNN does not do {dtype} on this machine")
    torch.manual_seed(0)
    model: Any = nn.Sequential(Mlp(nn.SiLU())).to(dtype).requires_grad_(False)
    hidden = torch.randn(1, rows, 24, dtype=dtype)
    expected = model(hidden)

    prepack(model)

    assert isinstance(model[0], GatedMlp)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert torch.allclose(model(hidden), expected, rtol=tolerance, atol=tolerance)


def test_an_mlp_with_another_activation_keeps_it() -> None:
    """The layers are prepacked, the arithmetic between them stays the model's."""
    model: Any = nn.Sequential(Mlp(nn.GELU())).requires_grad_(False)
    hidden = torch.ones(2, 24)
    expected = model(hidden)

    prepack(model)

    assert {Mlp, PackedLinear} <= {type(module) for module in model.modules()}
    assert torch.allclose(model(hidden), expected, rtol=1e-5, atol=1e-5)


def test_an_mlp_that_clamps_far_out_keeps_doing_so() -> None:
    """What small values do not show is looked for in large ones."""

    class Clamping(Mlp):
        def forward(self, hidden: Any) -> Any:
            """Compute the MLP, no value above 20."""
            gate = self.act_fn(self.gate_proj(hidden)).clamp(max=20.0)
            return self.down_proj(gate * self.up_proj(hidden))

    model: Any = nn.Sequential(Clamping(nn.SiLU())).requires_grad_(False)

    prepack(model)

    assert type(model[0]) is Clamping


def test_the_weight_can_still_be_looked_at() -> None:
    """Code that reads a layer's weight finds it."""
    linear = nn.Linear(5, 7)

    assert torch.equal(linear.weight, PackedLinear(linear).weight)


def test_other_devices_keep_their_layers() -> None:
    """Prepacking is for CPUs."""
    assert not can_prepack(torch.float32, torch.device("cuda"))
