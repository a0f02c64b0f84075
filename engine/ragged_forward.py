"""A model's forward pass over rows of unequal length.

Decides how a pass reaches the model: packed tokens, their positions, and a cache that tells the
replaced parts which pass it is. May import torch, transformers and the modules of this package
below it.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from engine.loading import LoadedModel
from engine.ragged import RaggedPass


class RaggedCache(Cache):
    """Holds nothing: attention and the replaced parts keep their state in the pass' store."""

    def __init__(self, ragged: RaggedPass) -> None:
        super().__init__(layers=[])
        self.ragged = ragged

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return new keys and values as they are; attention stores them."""
        return key_states, value_states


def forward(loaded: LoadedModel, ids: Tensor, ragged: RaggedPass, keep: Tensor) -> Tensor:
    """Compute a pass; return the scores after each token in `keep`.

    Shapes:
        ids: [T].   keep: [B], may be empty.   returns: [B, V].

    Raises:
        EngineFault: The model failed; running out of memory passes as torch raised it.
    """
    return loaded.compute(ids, ragged.positions, keep, RaggedCache(ragged), ragged=ragged)
