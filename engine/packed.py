"""The main path: prompts computed end to end without padding, then one token for all live rows.

Decides when rows join and leave a running batch and what each forward pass computes. Rows join
when a share of the slots is free and leave as they end. May import torch, numpy and the modules of
this package below it.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.answer import Answer
from engine.attention import PackedStep, Run
from engine.base import Event, Refill, Row, Step
from engine.batch import RunningBatch
from engine.device import is_out_of_memory
from engine.loading import LoadedModel
from engine.options import Limits
from engine.prefill import Piece, plan_chunks
from engine.sampling import choose
from engine.slab import Slab, Slot


class PackedBatch(RunningBatch):
    """One call of `run`: the rows waiting, the rows live, and their slab."""

    def __init__(
        self, loaded: LoadedModel, limits: Limits, refill: Refill | None, step: Step | None
    ) -> None:
        super().__init__(loaded, limits, refill, step)
        self._live: dict[Slot, Answer] = {}
        self._slab = Slab()
        self._exhausted = False

    def run(self, rows: Sequence[Row]) -> Iterator[Event]:
        """Answer rows; see `engine.base.Engine.run`."""
        try:
            yield from self._accept(rows)
            while True:
                try:
                    yield from self._turn()
                except Exception as error:
                    if not is_out_of_memory(error) or not self._live:
                        raise
                    retreat = True
                else:
                    retreat = False
                if retreat:  # out here, where the failed pass' tensors are gone
                    answers = list(self._live.values())
                    self._live.clear()
                    self._slab.clear()
                    yield from self._start_smaller(answers, len(answers))
                if self._exhausted:
                    return
        finally:
            self._slab.clear()

    def _turn(self) -> Iterator[Event]:
        """Let rows join if there is room, then decode one token of each."""
        if self._may_admit():
            more = self._ask_for_more(len(self._live))
            yield from self._accept(more)
            slots = self._admit()
            self._exhausted = not (more or slots or self._live)
            yield from self._prefill(slots)
        self._let_leave()
        if self._live:
            yield from self._decode()

    def _let_leave(self) -> None:
        """Free the slots of rows that the caller wants no more."""
        if leaving := self._ask_who_leaves():
            for slot, answer in list(self._live.items()):
                if answer.row.row_id in leaving:
                    self._free(slot)

    def _free(self, slot: Slot) -> None:
        del self._live[slot]
        self._slab.drop(slot)

    def _num_held(self) -> int:
        return sum(slot.capacity for slot in self._live)

    def _may_admit(self) -> bool:
        free = self._max_rows - len(self._live)
        return not self._live or free >= self._limits.refill_share * self._max_rows

    def _admit(self) -> list[Slot]:
        """Take waiting rows as long as slots and tokens allow; at least one if nothing runs."""
        admitted: dict[Slot, Answer] = {}
        num_tokens = self._num_held()
        while self._waiting and len(self._live) + len(admitted) < self._max_rows:
            num_tokens += self._waiting[0].num_needed
            if num_tokens > self._limits.max_batch_tokens and (self._live or admitted):
                break
            answer = self._waiting.popleft()
            admitted[Slot(answer.num_needed)] = answer
        if admitted:
            self._live |= admitted  # first, so that no row is lost if memory runs out
            self._slab.admit(list(admitted))
        return list(admitted)

    def _prefill(self, slots: list[Slot]) -> Iterator[Event]:
        """Compute the prompts of rows that have joined, and the first token of each."""
        lengths = [len(self._live[slot].row.prompt) for slot in slots]
        for planned in plan_chunks(lengths, self._limits.chunk_tokens):
            self._let_leave()
            chunk = [piece for piece in planned if slots[piece.index] in self._live]
            if not chunk:
                continue
            ending = [
                (slots[piece.index], offset - 1)
                for piece, offset in zip(chunk, _ends(chunk), strict=True)
                if piece.end == lengths[piece.index]
            ]
            scores = self._compute_chunk(slots, chunk, [last for _, last in ending])
            yield from self._advance([slot for slot, _ in ending], scores)

    def _compute_chunk(self, slots: list[Slot], chunk: list[Piece], keep: list[int]) -> Tensor:
        ids, positions, where = [], [], []
        runs = []
        for piece, end in zip(chunk, _ends(chunk), strict=True):
            slot = slots[piece.index]
            answer = self._live[slot]
            answer.start()
            span = np.arange(piece.start, piece.end)
            ids.append(answer.row.prompt[piece.start : piece.end].astype(np.int64))
            positions.append(span)
            where.append(span + slot.base)
            runs.append(Run(end - len(span), end, slot.base, piece.end, slot.stride))
            slot.length = piece.end
        step = PackedStep(self._slab, self._tensor(where), runs)
        return self._loaded.forward(
            self._tensor(ids), self._tensor(positions), self._tensor([np.array(keep)]), step
        )

    def _decode(self) -> Iterator[Event]:
        """Compute one more token of every live row."""
        slots = [slot for lane in self._slab.lanes for slot in lane.slots]
        ids = np.array([self._live[slot].token_ids[-1] for slot in slots])
        positions = np.array([slot.length for slot in slots])
        where = positions + np.array([slot.base for slot in slots])
        for slot in slots:
            slot.length += 1
        runs = [
            Run(index, index + 1, slot.base, slot.length, slot.stride)
            for index, slot in enumerate(slots)
        ]
        step = PackedStep(self._slab, self._tensor([where]), runs)
        keep = np.arange(len(slots))
        scores = self._loaded.forward(
            self._tensor([ids]), self._tensor([positions]), self._tensor([keep]), step
        )
        yield from self._advance(slots, scores)

    def _tensor(self, arrays: Sequence[NDArray[np.int64]]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(self._loaded.device)

    def _advance(self, slots: Sequence[Slot], scores: Tensor) -> Iterator[Event]:
        """Give each row its next token; rows that end leave before their events are handed out."""
        answers = [self._live[slot] for slot in slots]
        tokens = choose(scores, [answer.chooser for answer in answers]) if answers else []
        ended = []
        for slot, answer, token in zip(slots, answers, tokens, strict=True):
            event = answer.push(token)
            if event is not None:
                ended.append(event)
                self._free(slot)
        yield from ended


def _ends(chunk: Sequence[Piece]) -> list[int]:
    """Return where each piece ends among the chunk's tokens."""
    return list(accumulate(piece.end - piece.start for piece in chunk))
