"""Attention for packed rows, plugged into transformers: no padding, each row sees itself alone.

Decides how a packed step is attended, run by run; runs of one token whose rows lie side by side in
the slab are attended by one call. Models reach it through the registered attention function
`docmill`; what a model asks for beyond causal attention with windows,
sinks and capped scores raises `Unsupported`. May import torch, transformers, engine.steps,
engine.native.slab and engine.kernels.
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
from engine.unsupported import Unsupported

try:
    from torch.nn.attention import varlen
except ImportError:
    varlen = None  # type: ignore[assignment] # before torch 2.10

NAME = "docmill"

#: What models hand to attention functions that needs no attention here.
_HARMLESS = frozenset(
    {"cache", "use_cache", "position_ids", "position_embeddings", "dropout", "output_attentions"}
)


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
    if packed is None:
        raise Unsupported("its layers do not pass keyword arguments on to attention")
    asked = [name for name, value in kwargs.items() if not _is_harmless(name, value)]
    if attention_mask is not None or asked:
        raise Unsupported(f"attention with {', '.join(asked) or 'a mask of its own'}")
    layer = module.layer_idx
    assert isinstance(layer, int)
    packed.windows[layer] = sliding_window
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    wanted = Wanted(layer, scale, sliding_window, softcap, s_aux)
    if isinstance(packed.slab, BlockSlab):
        sinks = None if s_aux is None else s_aux.float()
        limits = sliding_window, softcap, sinks
        return packed.slab.attend(layer, query, packed.run_table, scale, *limits), None
    out = query.new_empty(query.shape[2], query.shape[1], value.shape[3])
    if packed.way == "varlen" and wanted.is_plain:
        return _attend_all(packed, query, wanted)[None], None
    if packed.way == "gathered":
        ends = accumulate(run.length for run in packed.runs)
        for run, end in zip(packed.runs, ends, strict=True):
            tokens, row = slice(run.start, run.end), slice(end - run.length, end)
            given = query[:, :, tokens], key[:, :, row], value[:, :, row]
            out[tokens] = _attend_run(packed, run, given, wanted)
        return out[None], None
    for lane in packed.lanes:
        tokens = slice(lane[0].start, lane[-1].end)
        if lane[0].end - lane[0].start == 1:
            out[tokens] = _attend_lane(packed, lane, query[0, :, tokens], wanted)
        else:
            given = query[:, :, tokens], key[:, :, tokens], value[:, :, tokens]
            if lane[0].past:
                given = given[0], *packed.row(layer, lane[0])
            out[tokens] = _attend_run(packed, lane[0], given, wanted)
    return out[None], None


def ways(dtype: torch.dtype, device: torch.device) -> tuple[Way, ...]:
    """Return the ways in which a model may be attended here, the fastest first."""
    fused = device.type == "cuda" and dtype is not torch.float32 and varlen is not None
    return ("varlen", "runs", "gathered") if fused else ("runs", "gathered")


def _attend_all(step: PackedStep, query: Tensor, wanted: Wanted) -> Tensor:
    """Attend all runs by one kernel, which reads the slab where it lies; [T, H, D]."""
    keys, values = step.slab.stores(wanted.layer)
    starts, bases, lengths = step.borders
    attended = varlen.varlen_attn(
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
    assert isinstance(attended, Tensor)  # a pair only where asked for
    return attended


def _attend_run(
    step: PackedStep, run: Run, given: tuple[Tensor, Tensor, Tensor], wanted: Wanted
) -> Tensor:
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


def _is_harmless(name: str, value: Any) -> bool:
    if name == "is_causal":
        return value is not False
    return value is None or value is False or name in _HARMLESS


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
