"""Attention for packed rows, plugged into transformers: no padding, each row sees itself alone.

Decides how a packed step is attended: all of it by one kernel where there is one, else run by run,
where runs of one token whose rows lie side by side in the slab are attended by one call. Models
reach it through the registered attention function `docmill`; what a model asks for beyond causal
attention with windows, sinks and capped scores raises `Unsupported`. May import torch,
transformers, engine.steps, engine.native.slab, engine.kernels and engine.unsupported.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.kernels import (
    additive,
    causal_mask,
    explicit_attention,
    fused_causal,
    lane_attention,
    lane_mask,
    prefers_tiles,
    tiled_causal,
)
from engine.native.slab import BlockSlab
from engine.steps import PackedStep, Run, Way
from engine.unsupported import pass_of

NAME = "docmill"

#: Queries of packed tokens, and keys and values as the model hands them over.
Given = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a layer asks of attention beside being causal.

    `window`: how far it looks back. `softcap`: scores are bent below it. `sinks`: [H], one further
    score for each head that takes weight and gives nothing.
    """

    layer: int
    scale: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None

    @property
    def is_plain(self) -> bool:
        """Whether torch's fused attention can do it."""
        return self.softcap is None and self.sinks is None


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    packed: PackedStep | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend each row to itself.

    Shapes:
        query: [1, H, T, D].   key, value: [1, K, T, D].   returns: [1, T, H, D].

    Raises:
        Unsupported: The model wants a kind of attention that is not built here.
    """
    step = pass_of(packed, attention_mask, kwargs)
    layer = module.layer_idx
    assert isinstance(layer, int)
    step.windows[layer] = sliding_window
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    wanted = Wanted(layer, scale, sliding_window, softcap, s_aux)
    if isinstance(step.slab, BlockSlab):
        return _attend_blocks(step, step.slab, query, wanted), None
    if step.way == "varlen" and wanted.is_plain:
        return _attend_all(step, query, wanted)[None], None
    attend = _attend_gathered if step.way == "gathered" else _attend_lanes
    return attend(step, (query, key, value), wanted)[None], None


def ways(dtype: torch.dtype, device: torch.device) -> tuple[Way, ...]:
    """Return the ways in which a model may be attended here, the fastest first."""
    may_fuse = device.type == "cuda" and dtype is not torch.float32
    fused = may_fuse and _fused_attention() is not None
    return ("varlen", "runs", "gathered") if fused else ("runs", "gathered")


def _fused_attention() -> Any:
    """Return torch's attention of rows of any length, None before torch 2.10.

    Cost: the first time, the import of torch's compiler with it; so only where it may be of use.
    """
    try:
        from torch.nn.attention import varlen
    except ImportError:
        return None
    return varlen.varlen_attn


def _attend_blocks(step: PackedStep, slab: BlockSlab, query: Tensor, wanted: Wanted) -> Tensor:
    """Attend all runs by the CPU's own kernels; [1, T, H, D]."""
    sinks = None if wanted.sinks is None else wanted.sinks.float()
    limits = wanted.window, wanted.softcap, sinks
    return slab.attend(wanted.layer, query, step.run_table, wanted.scale, *limits)


def _attend_all(step: PackedStep, query: Tensor, wanted: Wanted) -> Tensor:
    """Attend all runs by one kernel, which reads the slab where it lies; [T, H, D]."""
    keys, values = step.slab.stores(wanted.layer)
    starts, bases, lengths = step.borders
    attended: Tensor = _fused_attention()(
        query[0].transpose(0, 1),
        keys,
        values,
        starts,
        bases,
        max(run.end - run.start for run in step.runs),
        max(run.length for run in step.runs),
        scale=wanted.scale,
        window_size=(-1 if wanted.window is None else wanted.window - 1, 0),
        enable_gqa=True,
        seqused_k=lengths,
    )
    return attended


def _attend_gathered(step: PackedStep, given: Given, wanted: Wanted) -> Tensor:
    """Attend run by run over whole rows, which the model has made end to end; [T, H, D]."""
    query, keys, values = given
    out = query.new_empty(query.shape[2], query.shape[1], values.shape[3])
    ends = accumulate(run.length for run in step.runs)
    for run, end in zip(step.runs, ends, strict=True):
        tokens, row = slice(run.start, run.end), slice(end - run.length, end)
        part = query[:, :, tokens], keys[:, :, row], values[:, :, row]
        out[tokens] = _attend_run(step, run, part, wanted)
    return out


def _attend_lanes(step: PackedStep, given: Given, wanted: Wanted) -> Tensor:
    """Attend lane by lane over what the slab holds of rows; [T, H, D]."""
    query, keys, values = given
    out = query.new_empty(query.shape[2], query.shape[1], values.shape[3])
    for lane in step.lanes:
        first, tokens = lane[0], slice(lane[0].start, lane[-1].end)
        if first.end - first.start == 1:
            out[tokens] = _attend_lane(step, lane, query[0, :, tokens], wanted)
        else:
            part = query[:, :, tokens], keys[:, :, tokens], values[:, :, tokens]
            if first.past:
                part = part[0], *step.row(wanted.layer, first)
            out[tokens] = _attend_run(step, first, part, wanted)
    return out


def _attend_run(step: PackedStep, run: Run, given: Given, wanted: Wanted) -> Tensor:
    """Attend a run by itself; `given` are its queries and its whole row's keys and values."""
    query, keys, values = given
    mask = _run_mask(step, run, wanted, query)
    if not wanted.is_plain:
        attended = explicit_attention(
            query, keys, values, mask, wanted.scale, wanted.softcap, wanted.sinks
        )
        return attended[0].transpose(0, 1)
    if mask is None and prefers_tiles(query):
        return tiled_causal(query, keys, values, wanted.scale)
    return fused_causal(query, keys, values, mask, wanted.scale)


def _attend_lane(step: PackedStep, lane: list[Run], query: Tensor, wanted: Wanted) -> Tensor:
    """Attend one token of each of several rows that lie side by side; `query`: [H, B, D]."""
    lengths = tuple(run.length for run in lane)
    first = lane[0]
    keys, values = step.slab.read(wanted.layer, first.base, len(lane), first.stride, max(lengths))
    key = (first, wanted.window)
    if key not in step.masks:
        mask = lane_mask(lengths, wanted.window, step.where.device)
        step.masks[key] = additive(mask, query.dtype)
    mask = step.masks[key]
    if wanted.is_plain:
        return lane_attention(query, keys, values, mask, wanted.scale)
    one_each = query.transpose(0, 1)[:, :, None]  # [H, B, D] -> [B, H, 1, D]
    attended = explicit_attention(
        one_each, keys, values, mask, wanted.scale, wanted.softcap, wanted.sinks
    )
    return attended[:, :, 0]


def _run_mask(step: PackedStep, run: Run, wanted: Wanted, query: Tensor) -> Tensor | None:
    """Return the mask of a run, made once per step; None where plain causal attention does."""
    window = wanted.window
    if window is not None and window >= run.length:
        window = None
    if window is None and wanted.is_plain and (not run.past or prefers_tiles(query)):
        return None
    key = (run, window)
    if key not in step.masks:
        mask = causal_mask(run.end - run.start, run.past, window, query.device)
        step.masks[key] = additive(mask, query.dtype)
    return step.masks[key]


AttentionInterface.register(NAME, packed_attention)
