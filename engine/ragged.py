"""One pass over rows of unequal length: whose tokens are computed, and where their state lies.

Decides the index arithmetic of a pass, once for all layers; knows rows and positions, no model. The
tokens of all rows lie end to end. A row keeps what it has seen in *rings* (token at position p in
slot p modulo the ring's size) and, where the model compresses, one *entry* per window of `rate`
tokens:

    position   0 1 2 3 4 5 6 7 8 9     rate 4: windows 0-3 and 4-7 are full, 8-9 wait in the ring
    ring of 8  8 9 2 3 4 5 6 7         (twice the rate, where a window also sees the one before)
    entries    [0-3] [4-7]

In shapes, N counts windows and P the tokens of one, or of a ring. May import torch, numpy and
engine.ragged_store.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.ragged_store import RowStore

#: Queries of a prompt attended at once: bounds the scores' memory, and what a window wastes.
_TILE = 256

_T = TypeVar("_T")
_Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens `start` to `end` of the pass continue the row `row`, which has seen `past` tokens."""

    row: int
    start: int
    end: int
    past: int

    @property
    def length(self) -> int:
        """Tokens that the row has seen after the pass."""
        return self.past + self.end - self.start


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens `start` to `end`, as many of each of `num_rows` rows from `row`, attended together.

    `run` is what a block of one row is a part of, None when each row of the block adds one token.
    `length`: how far its last token is from the beginning of its row, at most.
    """

    row: int
    num_rows: int
    start: int
    end: int
    length: int
    run: Run | None

    def fold(self, tokens: Tensor) -> Tensor:
        """Cut the block out of packed tokens: [1, T, ...] -> [B, T of each, ...]."""
        return tokens[0, self.start : self.end].view(self.num_rows, -1, *tokens.shape[2:])

    def of(self, state: Tensor) -> Tensor:
        """Return the state of the block's rows."""
        return state[self.row : self.row + self.num_rows]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows that fill up in a pass, of all rows.

    Shapes:
        carried: rows whose ring is read.   current, previous: [N, P], indices into `collect`.
        is_first: [N], the window has none before it.   rows, numbers: [N].   starts: [N].
    """

    carried: Tensor
    current: Tensor
    previous: Tensor
    is_first: Tensor
    rows: Tensor
    numbers: Tensor
    starts: Tensor

    def collect(self, ring: Tensor, fresh: Tensor) -> Tensor:
        """Lay rings that are read and new tokens end to end: [B, P, D], [T, D] -> [S, D]."""
        if not len(self.carried):
            return fresh
        return torch.cat([ring[self.carried].flatten(0, 1), fresh])


@dataclass(eq=False, slots=True)
class RaggedPass:
    """What one forward pass computes. Rows of `runs` are in order, at most one run for each.

    `decoding`: every live row adds one token, so that row i is token i.
    `far` holds what a layer's compressor found, for its attention; `windows_asked` records the
    sliding window that each layer asked for.
    """

    store: RowStore
    runs: Sequence[Run]
    decoding: bool
    device: torch.device
    blocks: list[Block] = field(init=False)
    far: dict[int, Any] = field(default_factory=dict)
    windows_asked: dict[int, int | None] = field(default_factory=dict)
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Cut prompts into blocks, or take one token of all rows as one."""
        if self.decoding:
            longest = max(run.length for run in self.runs)
            self.blocks = [Block(0, len(self.runs), 0, len(self.runs), longest, None)]
            return
        self.blocks = []
        for run in self.runs:
            for start in range(run.start, run.end, _TILE):
                end = min(start + _TILE, run.end)
                length = run.past + end - run.start
                self.blocks.append(Block(run.row, 1, start, end, length, run))

    @property
    def positions(self) -> Tensor:
        """Where each token stands in its row; [T]."""
        return self.once(
            "positions",
            lambda: self._tensor([np.arange(run.past, run.length) for run in self.runs]),
        )

    def keep(self, state: Tensor, fresh: Tensor) -> None:
        """Put new tokens into the rings of their rows, of each row the last that fit.

        Shapes:
            state: [B, P, ...].   fresh: [T, ...].
        """
        size = state.shape[1]
        slots, tokens = self.once(("kept", size), lambda: self._kept(size))
        if len(tokens) < len(fresh):
            fresh = fresh[tokens]
        state.flatten(0, 1).index_copy_(0, slots, fresh)

    def _kept(self, size: int) -> tuple[Tensor, Tensor]:
        tokens, slots = [], []
        for run in self.runs:
            kept = np.arange(max(run.start, run.end - size), run.end)
            tokens.append(kept)
            slots.append(run.row * size + (run.past + kept - run.start) % size)
        return self._tensor(slots), self._tensor(tokens)

    def before(self, state: Tensor, run: Run, reach: int | None) -> Tensor:
        """Return what a run's row has seen before it, the last `reach` tokens, in order."""
        first = 0 if reach is None else max(0, run.past - reach)
        size = state.shape[1]
        slots = self.once(
            ("before", run, first, size),
            lambda: self._tensor([np.arange(first, run.past) % size]),
        )
        return state[run.row, slots]

    def near(self, block: Block, window: int | None, first: int) -> Tensor:
        """Return what a prompt's block may see of the keys from position `first`; [1, T, S]."""

        def make() -> Tensor:
            keys = torch.arange(first, block.length, device=self.device)
            queries = self.positions[block.start : block.end, None]
            seen = keys <= queries
            return (seen if window is None else seen & (keys > queries - window))[None]

        return self.once(("near", block, window, first), make)

    def filled(self, num_slots: int) -> Tensor:
        """Return which of the first slots of a ring hold a token, while decoding; [B, 1, S]."""

        def make() -> Tensor:
            slots = torch.arange(num_slots, device=self.device)
            return (slots <= self.positions[:, None])[:, None]

        return self.once(("filled", num_slots), make)

    def closed(self, block: Block, rate: int) -> Tensor:
        """Return which windows have ended for which token of a block; [B, T, N]."""

        def make() -> Tensor:
            windows = torch.arange(block.length // rate, device=self.device)
            ended = (block.fold(self.positions[None]) + 1) // rate
            return windows < ended[..., None]

        return self.once(("closed", block, rate), make)

    def windows(self, rate: int, size: int) -> Windows | None:
        """Return the windows that fill up, None if none does; rings have `size` slots."""
        return self.once(("windows", rate, size), lambda: self._windows(rate, size))

    def _windows(self, rate: int, size: int) -> Windows | None:
        filling = [run for run in self.runs if run.length // rate > run.past // rate]
        if not filling:
            return None
        carried = [run for run in filling if run.past]
        current, previous, rows, numbers = [], [], [], []
        for run in filling:
            order = carried.index(run) if run.past else 0
            window = np.arange(run.past // rate, run.length // rate)
            positions = window[:, None] * rate + np.arange(rate)

            def where(positions: _Ints, run: Run = run, ring: int = order * size) -> _Ints:
                fresh = len(carried) * size + run.start + positions - run.past
                return np.where(positions < run.past, ring + positions % size, fresh)

            current.append(where(positions))
            # the first window has none before it: any tokens of its own row, which are masked
            previous.append(where(np.where(positions < rate, positions, positions - rate)))
            rows.append(np.full(len(window), run.row))
            numbers.append(window)
        number = self._tensor(numbers)
        return Windows(
            carried=self._tensor([np.array([run.row for run in carried], dtype=np.int64)]),
            current=self._tensor(current),
            previous=self._tensor(previous),
            is_first=number == 0,
            rows=self._tensor(rows),
            numbers=number,
            starts=number * rate,
        )

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returns, asking it once per pass."""
        if key not in self._made:
            self._made[key] = make()
        made: _T = self._made[key]
        return made

    def _tensor(self, arrays: Sequence[_Ints]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(self.device)
