"""The path of stateful models: rows of unequal length together, each with a state of its own.

Decides when rows join and leave and what each pass computes. Prompts are computed end to end, in
chunks; then one token of all live rows at a time. May import torch, numpy and the modules of this
package below it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.answer import Answer
from engine.base import Event, Refill, Step
from engine.batch import OpenBatch
from engine.loading import LoadedModel
from engine.options import Limits
from engine.ragged import RaggedPass, Run
from engine.ragged_forward import forward
from engine.ragged_prefixes import plan_beginnings
from engine.ragged_store import RowStore
from engine.sampling import choose


@dataclass(eq=False, slots=True)
class _Live:
    """A row that runs; its place in `RaggedBatch._live` is its row in the store.

    `length` tokens are in its state. It waits for `source`, if there is one, to reach the first
    `shared` tokens. `halts`: where it does so for others.
    """

    answer: Answer
    length: int = 0
    source: "_Live | None" = None
    shared: int = 0
    halts: set[int] = field(default_factory=set)

    @property
    def num_left(self) -> int:
        """Tokens of its prompt that are still to be computed."""
        return max(0, len(self.answer.row.prompt) - self.length)

    def next_ids(self, budget: int) -> NDArray[np.uint32]:
        """Return the next tokens of its prompt, up to where it halts; none while it waits."""
        if self.source is not None:
            return self.answer.row.prompt[:0]
        halt = min((halt for halt in self.halts if halt > self.length), default=None)
        end = self.length + budget
        return self.answer.row.prompt[self.length : end if halt is None else min(end, halt)]


class RaggedBatch(OpenBatch):
    """One call of `run`: the rows waiting, the rows live, and their state."""

    def __init__(
        self, loaded: LoadedModel, limits: Limits, refill: Refill | None, step: Step | None
    ) -> None:
        super().__init__(loaded, limits, refill, step)
        self._live: list[_Live] = []
        self._store = RowStore()

    def _running(self) -> list[Answer]:
        return [live.answer for live in self._live]

    def _clear(self) -> None:
        self._live.clear()
        self._store.clear()

    def _turn(self) -> Iterator[Event]:
        """Let rows join if there is room, then decode one token of each."""
        yield from self._let_join()
        yield from self._prefill()  # nothing, unless rows have joined
        self._let_leave()
        if self._live:
            yield from self._decode()

    def _let_leave(self) -> None:
        """Free the state of rows that the caller wants no more."""
        if leaving := self._ask_who_leaves():
            for live in list(self._live):
                if live.answer.row.row_id in leaving:
                    self._drop(live)

    def _drop(self, live: _Live) -> None:
        row = self._live.index(live)
        last = self._live.pop()
        if last is not live:
            self._live[row] = last
        self._store.drop(row)
        for other in self._live:
            if other.source is live:  # it computes its beginning itself
                other.source = None

    def _admit(self) -> None:
        """Take waiting rows as long as rows and tokens allow; at least one if nothing runs.

        What grows with a row has room for the longest row's tokens in every row.
        """
        joined: list[_Live] = []
        capacity = max((live.answer.num_needed for live in self._live), default=0)
        while self._waiting and len(self._live) + len(joined) < self._max_rows:
            num_rows = len(self._live) + len(joined) + 1
            longest = max(capacity, self._waiting[0].num_needed)
            if num_rows > 1 and num_rows * longest > self._limits.max_batch_tokens:
                break
            capacity = longest
            joined.append(_Live(self._waiting.popleft()))
        if joined:
            plans = plan_beginnings([live.answer.row.prompt for live in joined])
            for live, plan in zip(joined, plans, strict=True):
                if plan is not None:
                    live.source, live.shared = joined[plan.source], plan.num_tokens
                    live.source.halts.add(plan.num_tokens)
            self._live += joined  # first, so that no row is lost if memory runs out
            self._store.admit(len(joined), capacity)

    def _prefill(self) -> Iterator[Event]:
        """Compute the prompts of rows that have joined, and the first token of each."""
        while any(live.num_left for live in self._live):
            self._let_leave()
            chunk = self._next_chunk()
            if not chunk:
                return
            ids = np.concatenate([ids for _, ids in chunk]).astype(np.int64)
            ends = list(accumulate(len(ids) for _, ids in chunk))
            runs = []
            for (live, part), end in zip(chunk, ends, strict=True):
                live.answer.start()
                row = self._live.index(live)
                runs.append(Run(row, end - len(part), end, live.length))
                live.length += len(part)
            whole = [index for index, (live, _) in enumerate(chunk) if not live.num_left]
            ragged = RaggedPass(self._store, runs, False, self._loaded.device)
            scores = self._forward(
                ids, ragged, np.array([ends[index] - 1 for index in whole], dtype=np.int64)
            )
            self._copy_beginnings()  # before rows that have been computed can leave
            yield from self._advance([chunk[index][0] for index in whole], scores)

    def _next_chunk(self) -> list[tuple[_Live, NDArray[np.uint32]]]:
        """Return the next tokens of prompts that are not whole yet, in order, up to the limit."""
        chunk = []
        budget = self._limits.chunk_tokens
        for live in self._live:
            ids = live.next_ids(budget)
            budget -= len(ids)
            if len(ids):
                chunk.append((live, ids))
        return chunk

    def _copy_beginnings(self) -> None:
        """Let rows begin whose sources have come to where they part."""
        for row, live in enumerate(self._live):
            source = live.source
            if source is not None and source.length == live.shared:
                live.answer.start()
                self._store.copy(self._live.index(source), row)
                live.length = live.answer.num_cached = live.shared
                live.source = None

    def _decode(self) -> Iterator[Event]:
        """Compute one more token of every live row."""
        rows = list(self._live)
        runs = [Run(row, row, row + 1, live.length) for row, live in enumerate(rows)]
        ids = np.array([live.answer.token_ids[-1] for live in rows])
        for live in rows:
            live.length += 1
        ragged = RaggedPass(self._store, runs, True, self._loaded.device)
        yield from self._advance(rows, self._forward(ids, ragged, np.arange(len(rows))))

    def _forward(
        self, ids: NDArray[np.int64], ragged: RaggedPass, keep: NDArray[np.int64]
    ) -> Tensor:
        ids_, keep_ = (torch.from_numpy(each).to(ragged.device) for each in (ids, keep))
        return forward(self._loaded, ids_, ragged, keep_)

    def _advance(self, rows: Sequence[_Live], scores: Tensor) -> Iterator[Event]:
        """Give each row its next token; rows that end leave before their events are handed out."""
        tokens = choose(scores, [live.answer.chooser for live in rows]) if rows else []
        ended = []
        for live, token in zip(rows, tokens, strict=True):
            event = live.answer.push(token)
            if event is not None:
                ended.append(event)
                self._drop(live)
        yield from ended
