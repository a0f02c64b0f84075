"""Looking through a model for what can be replaced. Decides nothing; may import torch."""

from typing import Any

from torch import nn


def children(model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """Return each module below `model`, after its parent and its name there.

    A list, so that modules may be replaced while it is gone through.
    """
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
    ]
