"""Matrix products on a CPU with weights stored the way the hardware reads them.

Decides which modules of a model are replaced: linear layers by oneDNN-prepacked ones (up to twice
the speed while few rows decode), and a gated MLP by one that computes activation and product
inside the matrix kernels. Models stay transformers' own; only these leaves change. May import
torch and engine.modules.
"""

from typing import Any

import torch
from torch import Tensor, nn

from engine.modules import children


class PackedLinear(nn.Module):
    """A linear layer whose weight lies in oneDNN's own layout; the original weight is not kept."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.bias = linear.bias
        self.dtype = linear.weight.dtype

    @property
    def weight(self) -> Tensor:
        """The weight in its usual layout, for code that looks at it. Cost: one copy."""
        return self.packed.to_dense()

    def forward(self, hidden: Tensor, activation: str = "none") -> Tensor:
        """Multiply, and apply oneDNN's `activation` to the product."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            hidden, self.packed, self.bias, activation, [], ""
        )
        return out

    def times(self, hidden: Tensor, factor: Tensor) -> Tensor:
        """Multiply, and scale the product by `factor` element by element."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            hidden, factor, self.packed, self.bias, "mul"
        )
        return out


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)) in three kernels."""

    def __init__(self, gate: PackedLinear, up: PackedLinear, down: PackedLinear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, hidden: Tensor) -> Tensor:
        """Compute the MLP."""
        gate = self.gate_proj(hidden, activation="swish")
        out: Tensor = self.down_proj(self.up_proj.times(hidden, gate))
        return out


def can_prepack(dtype: torch.dtype, device: torch.device) -> bool:
    """Say whether weights of this kind can be prepacked here."""
    if device.type != "cpu":
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call] # no annotations
        return False
    bfloat16 = dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return bool(dtype is torch.float32 or bfloat16)


def prepack(model: nn.Module) -> None:
    """Replace what can be replaced, in place. Cost: one copy of each weight, one at a time."""
    for parent, name, child in children(model):
        if type(child) is nn.Linear and can_prepack(child.weight.dtype, child.weight.device):
            setattr(parent, name, PackedLinear(child))
    for parent, name, child in children(model):
        if _is_gated_mlp(child):
            setattr(parent, name, GatedMlp(child.gate_proj, child.up_proj, child.down_proj))


def _is_gated_mlp(module: Any) -> bool:
    """Say whether a module is exactly the usual gated MLP, by its parts and by what it computes."""
    parts = ("gate_proj", "up_proj", "down_proj")
    if {name for name, _ in module.named_children()} != {*parts, "act_fn"}:
        return False
    if not all(isinstance(getattr(module, name), PackedLinear) for name in parts):
        return False
    ramp = torch.linspace(-8, 8, 257)
    if not torch.equal(module.act_fn(ramp), torch.nn.functional.silu(ramp)):
        return False
    fused = GatedMlp(module.gate_proj, module.up_proj, module.down_proj)
    probe = torch.linspace(-1, 1, module.gate_proj.in_features, dtype=module.gate_proj.dtype)[None]
    for amplitude in (1, 64):  # far out, too: some models clamp there
        expected = module(probe * amplitude).float()
        error = (fused(probe * amplitude).float() - expected).norm()
        if not error <= 0.02 * expected.norm():
            return False
    return True
