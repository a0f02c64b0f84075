"""Attention for packed rows, plugged into transformers: no padding, each row sees itself alone.

Decides how a packed step is attended: a *segment* is a run of one row's prompt, a *lane step* one
new token for each row of a lane. Models reach it through the registered attention function
`docmill` and the cache `SlabCache`; what a model asks for beyond causal and sliding-window
attention raises `Unsupported`. May import torch, transformers,
engine.slab and engine.kernels.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from engine.kernels import (
    additive,
    causal_mask,
    fused_causal,
    lane_attention,
    lane_mask,
    prefers_tiles,
    tiled_causal,
)
from engine.slab import Slab

NAME = "docmill"

#: What models hand to attention functions that needs no attention here.
_HARMLESS = frozenset(
    {"cache", "use_cache", "position_ids", "position_embeddings", "dropout", "output_attentions"}
)


class Unsupported(Exception):
    """The packed path cannot serve this model; the message says what it asks for."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Packed tokens `start` to `end` continue a row of which `past` tokens are in the slab."""

    start: int
    end: int
    base: int
    past: int = 0


@dataclass(frozen=True, slots=True)
class LaneStep:
    """Packed tokens `start` to `end`, one for each row of a lane, already counted in `lengths`."""

    start: int
    end: int
    base: int
    capacity: int
    lengths: tuple[int, ...]


@dataclass(eq=False, slots=True)
class PackedStep:
    """What one forward pass attends; `where` is the token slot of each packed token, int64 [T].

    `windows` records the sliding window that each layer asked for.
    """

    slab: Slab
    where: Tensor
    segments: list[Segment] = field(default_factory=list)
    lanes: list[LaneStep] = field(default_factory=list)
    windows: dict[int, int | None] = field(default_factory=dict)
    masks: dict[Any, Tensor | None] = field(default_factory=dict)


class SlabCache(Cache):
    """Stores what a model hands over in the slab of the step; attention reads it from there."""

    def __init__(self, step: PackedStep) -> None:
        super().__init__(layers=[])
        self._step = step

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values and return them as they are."""
        self._step.slab.write(layer_idx, key_states, value_states, self._step.where)
        return key_states, value_states


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    packed: PackedStep | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend each row to itself.

    Shapes:
        query: [1, H, T, D].   key, value: [1, K, T, D].   returns: [1, T, H, D].

    Raises:
        Unsupported: The model wants a kind of attention that is not built here.
    """
    if packed is None:
        raise Unsupported("its layers do not pass keyword arguments on to attention")
    asked = [name for name, value in kwargs.items() if not _is_harmless(name, value)]
    if attention_mask is not None or asked:
        raise Unsupported(f"attention with {', '.join(asked) or 'a mask of its own'}")
    layer = module.layer_idx
    assert isinstance(layer, int)
    packed.windows[layer] = sliding_window
    tiles = prefers_tiles(query)
    out = query.new_empty(query.shape[2], query.shape[1], value.shape[3])
    for segment in packed.segments:
        run = slice(segment.start, segment.end)
        keys, values = key[:, :, run], value[:, :, run]
        if segment.past:
            length = segment.past + segment.end - segment.start
            keys, values = packed.slab.read(layer, segment.base, 1, length, length)
        mask = _segment_mask(packed, segment, sliding_window, query)
        if mask is None and tiles:
            out[run] = tiled_causal(query[:, :, run], keys, values, scaling)
        else:
            out[run] = fused_causal(query[:, :, run], keys, values, mask, scaling)
    for lane in packed.lanes:
        run = slice(lane.start, lane.end)
        rows, longest = len(lane.lengths), max(lane.lengths)
        keys, values = packed.slab.read(layer, lane.base, rows, lane.capacity, longest)
        mask = _lane_mask(packed, lane, sliding_window, query.dtype)
        out[run] = lane_attention(query[0, :, run], keys, values, mask, scaling)
    return out[None], None


def _is_harmless(name: str, value: Any) -> bool:
    if name == "is_causal":
        return value is not False
    return value is None or value is False or name in _HARMLESS


def _segment_mask(
    step: PackedStep, segment: Segment, window: int | None, query: Tensor
) -> Tensor | None:
    """Return the mask of a segment, made once per step; None where plain causal attention does."""
    num_queries = segment.end - segment.start
    if window is not None and window >= segment.past + num_queries:
        window = None
    if window is None and (not segment.past or prefers_tiles(query)):
        return None
    key = (segment, window)
    if key not in step.masks:
        mask = causal_mask(num_queries, segment.past, window, query.device)
        step.masks[key] = additive(mask, query.dtype)
    return step.masks[key]


def _lane_mask(
    step: PackedStep, lane: LaneStep, window: int | None, dtype: torch.dtype
) -> Tensor | None:
    """Return the mask of a lane's step, made once per step."""
    key = (lane, window)
    if key not in step.masks:
        step.masks[key] = additive(lane_mask(lane.lengths, window, step.where.device), dtype)
    return step.masks[key]


AttentionInterface.register(NAME, packed_attention)
