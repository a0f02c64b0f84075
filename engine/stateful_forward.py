"""A model's forward pass over rows of equal length, with transformers' own cache.

Decides what the model is told. May import torch, transformers and engine.loading.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.loading import LoadedModel


def forward_group(loaded: LoadedModel, ids: Tensor, past: int, held: DynamicCache) -> Tensor:
    """Go on with rows of which `held` has `past` tokens; return the scores after the last.

    Positions are told, because what models derive from a cache of several kinds of layer is wrong
    for some (Bamba).

    Shapes:
        ids: [B, T].   returns: [B, V].
    """
    told = {}
    if _takes_positions(type(loaded.model).forward):
        told["position_ids"] = torch.arange(past, past + ids.shape[1], device=ids.device)[None]
    with torch.inference_mode():
        output = loaded.model(input_ids=ids, cache=held, use_cache=True, logits_to_keep=1, **told)
    scores: Tensor = output.logits[:, -1]
    return scores


@cache
def _takes_positions(forward: Callable[..., Any]) -> bool:
    """Say whether a model can be told positions; asked before every token."""
    return "position_ids" in inspect.signature(forward).parameters
