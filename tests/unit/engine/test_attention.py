"""What the packed attention function refuses."""

from typing import Any

import pytest
import torch
from torch import nn

from engine.attention import PackedStep, packed_attention
from engine.slab import Slab
from engine.unsupported import Unsupported


def attend(**changes: Any) -> None:
    """Call the attention function on one token with the given arguments."""
    module = nn.Module()
    module.layer_idx = 0  # type: ignore[assignment] # as transformers' attention modules have it
    one = torch.ones(1, 1, 1, 4)
    step = PackedStep(Slab(), torch.zeros(1, dtype=torch.int64), [])
    packed_attention(module, one, one, one, **({"attention_mask": None, "packed": step} | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"packed": None}, "keyword arguments"),
        ({"attention_mask": torch.ones(1)}, "mask of its own"),
        ({"position_bias": torch.ones(1)}, "position_bias"),
        ({"is_causal": False}, "is_causal"),
    ],
)
def test_other_kinds_of_attention_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    """A model that wants more than causal attention is never served without it."""
    with pytest.raises(Unsupported, match=named):
        attend(**changes)


def test_arguments_without_a_meaning_here_are_ignored() -> None:
    """Arguments that are off, or about other parts of a model, refuse nothing."""
    attend(is_causal=True, softcap=None, output_router_logits=False, dropout=0.0)
