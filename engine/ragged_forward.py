"""A model's forward pass over rows of unequal length.

Decides how a pass reaches the model: packed tokens, their positions, and a cache that tells the
replaced parts which pass it is. May import torch, transformers, docmill.errors and the modules of
this package below it.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from docmill.errors import EngineError, EngineFault
from engine.device import is_out_of_memory
from engine.loading import LoadedModel
from engine.ragged import RaggedPass
from engine.unsupported import Unsupported


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
    # an empty selection is not worth asking every model for: compute one, drop it
    wanted = keep if len(keep) else torch.zeros(1, dtype=torch.int64, device=loaded.device)
    try:
        with torch.inference_mode():
            output = loaded.model(
                input_ids=ids[None],
                position_ids=ragged.positions[None],
                cache=RaggedCache(ragged),
                use_cache=True,
                logits_to_keep=wanted,
                ragged=ragged,
            )
    except (EngineError, Unsupported):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise EngineFault(f"the model failed: {type(error).__name__}: {error}") from error
    scores: Tensor = output.logits[0]
    return scores[: len(keep)]
