"""Attention for packed rows, plugged into transformers: no padding, each row sees itself alone.

Decides how a packed step is attended, run by run; runs of one token whose rows lie side by side in
the slab are attended by one call. Models reach it through the registered attention function
`docmill` and the cache `SlabCache`; what a model asks for beyond causal attention with windows,
sinks and capped scores raises `Unsupported`. May import torch, transformers, engine.slab,
engine.native.slab and engine.kernels.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache

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
from engine.slab import Slab
from engine.unsupported import Unsupported

NAME = "docmill"

#: What models hand to attention functions that needs no attention here.
_HARMLESS = frozenset(
    {"cache", "use_cache", "position_ids", "position_embeddings", "dropout", "output_attentions"}
)


@dataclass(frozen=True, slots=True)
class Run:
    """Packed tokens `start` to `end`: the newest of a row's first `length` tokens.

    The row's keys and values lie in the slab from `base`; `stride` slots further begin those of its
    neighbour. A run of several tokens is part of a prompt, or drafts with the token before them.
    """

    start: int
    end: int
    base: int
    length: int
    stride: int

    @property
    def past(self) -> int:
        """Tokens of the row before the run."""
        return self.length - (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Copy:
    """A row begins as another does: `num_tokens` from slot `source` on are copied to `target`."""

    source: int
    target: int
    num_tokens: int


@dataclass(eq=False)
class PackedStep:
    """What one forward pass attends; `where` is the token slot of each packed token, int64 [T].

    `copies` are made in each layer once its new tokens are stored and before any attends, so that
    a row may begin with tokens that another computes in the same pass. `windows` records the
    sliding window that each layer asked for. `gathers`: the model makes keys and values of what its
    cache gives back (MLA stores them compressed), so it is given the runs' rows, end to end.
    """

    slab: Slab
    where: Tensor
    runs: list[Run]
    copies: list[Copy] = field(default_factory=list)
    gathers: bool = False
    windows: dict[int, int | None] = field(default_factory=dict)
    masks: dict[Any, Tensor | None] = field(default_factory=dict)

    @cached_property
    def lanes(self) -> list[list[Run]]:
        """Runs that can be attended by one call: neighbours of one token each, or a single run."""
        lanes: list[list[Run]] = []
        for run in self.runs:
            if lanes and _are_neighbours(lanes[-1][-1], run):
                lanes[-1].append(run)
            else:
                lanes.append([run])
        return lanes

    @cached_property
    def run_table(self) -> Tensor:
        """The runs as the kernels read them: start, tokens, base, length; int32 [R, 4]."""
        rows = [(run.start, run.end - run.start, run.base, run.length) for run in self.runs]
        return torch.tensor(rows, dtype=torch.int32)

    def row(self, layer: int, run: Run) -> tuple[Tensor, Tensor]:
        """Return what the slab holds of a run's whole row; two of [1, K, S, D]."""
        keys, values = self.slab.read(layer, run.base, 1, run.length, run.length)
        return keys, values

    def make_copies(self, layer: int) -> None:
        """Give rows in one layer what they share with others; its new tokens are stored."""
        for copy in self.copies:
            self.slab.copy(layer, copy.source, copy.target, copy.num_tokens)


def _are_neighbours(run: Run, other: Run) -> bool:
    alike = run.stride == other.stride and run.base + run.stride == other.base
    return alike and run.end - run.start == other.end - other.start == 1


class SlabCache(Cache):
    """Stores what a model hands over in the slab of the step; attention reads it from there."""

    def __init__(self, step: PackedStep) -> None:
        super().__init__(layers=[])
        self._step = step

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values; return them as they are, or those of the runs' whole rows."""
        step = self._step
        step.slab.write(layer_idx, key_states, value_states, step.where)
        step.make_copies(layer_idx)
        if not step.gathers:
            return key_states, value_states
        rows = [step.row(layer_idx, run) for run in step.runs]
        keys, values = (torch.cat(each, 2) for each in zip(*rows, strict=True))
        return keys, values


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
    if packed.gathers:
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
