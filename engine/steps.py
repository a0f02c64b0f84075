"""What one forward pass computes: runs of packed tokens, and where their rows lie.

Decides the vocabulary between who plans a pass and who attends it, and what a model that stores
keys and values gets back. May import torch, transformers and engine.slab.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from engine.slab import Slab

#: How a pass is attended: by one kernel for all its runs (CUDA, half precision), run by run and
#: lane by lane, or over rows that the model makes from what its cache gives back (MLA stores them
#: compressed). Which one serves a model is found out at load.
Way = Literal["varlen", "runs", "gathered"]


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
    a row may begin with tokens that another computes in the same pass. `keep` are the tokens whose
    scores are wanted, int64 [B]: the newest of some runs. `windows` records the sliding window that
    each layer asked for.
    """

    slab: Slab
    where: Tensor
    runs: list[Run]
    copies: list[Copy] = field(default_factory=list)
    way: Way = "runs"
    keep: Tensor | None = None
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

    @cached_property
    def kept_table(self) -> Tensor:
        """The runs of the tokens in `keep` by themselves, in the form of `run_table`."""
        assert self.keep is not None
        ends = torch.tensor([run.end for run in self.runs])
        kept = torch.searchsorted(self.keep, ends).tolist()
        assert kept[-1] == len(self.keep), "tokens that no run has, or not in order"
        rows = [
            (before, until - before, run.base, run.length)
            for run, (before, until) in zip(self.runs, pairwise([0, *kept]), strict=True)
            if until > before
        ]
        return torch.tensor(rows, dtype=torch.int32).view(-1, 4)

    @cached_property
    def borders(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where runs begin, and the last ends, among packed tokens and in the slab; and lengths.

        Shapes:
            returns: int32 [R + 1], [R + 1], [R], on the device.
        """
        starts = [*(run.start for run in self.runs), self.runs[-1].end]
        bases = [*(run.base for run in self.runs), self.runs[-1].base + self.runs[-1].length]
        lengths = [run.length for run in self.runs]
        numbers = torch.tensor([*starts, *bases, *lengths], dtype=torch.int32)
        on_device = numbers.to(self.where.device, non_blocking=True)
        first, second = len(starts), len(starts) + len(bases)
        return on_device[:first], on_device[first:second], on_device[second:]

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
        if step.way != "gathered":
            return key_states, value_states
        rows = [step.row(layer_idx, run) for run in step.runs]
        keys, values = (torch.cat(each, 2) for each in zip(*rows, strict=True))
        return keys, values
