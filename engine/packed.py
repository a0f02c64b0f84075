"""The main path: parts of prompts and new tokens of all live rows, end to end in one pass.

Decides when rows join and leave a running batch and what each forward pass computes. Rows join as
slots get free and leave as they end; a pass holds the next token of every live row, so that rows
which join do not hold up the others. May import numpy and the modules of this package below it.
"""

import time
from collections.abc import Iterator, Sequence

from engine.answer import Answer
from engine.base import Event, Refill, Step
from engine.batch import OpenBatch
from engine.live import LiveRow, Part
from engine.loading import LoadedModel
from engine.options import Limits
from engine.passes import compute
from engine.prefill import Prefill
from engine.sampling import Choices
from engine.slab import Slot
from engine.speculation import Speculation


class PackedBatch(OpenBatch):
    """One call of `run`: the rows waiting, the rows live, and their slab."""

    def __init__(
        self, loaded: LoadedModel, limits: Limits, refill: Refill | None, step: Step | None
    ) -> None:
        super().__init__(loaded, limits, refill, step)
        self._live: dict[Slot, LiveRow] = {}
        self._slab = loaded.new_slab()
        self._prefill = Prefill()
        self._speculation = Speculation(limits.max_drafts)
        self._unshared: set[str] = set()

    def _turn(self) -> Iterator[Event]:
        """Let rows join if there is room, then compute one pass."""
        yield from self._let_join()
        self._let_leave()
        parts = [*self._next_tokens(), *self._prefill.next_parts(self._limits.chunk_tokens)]
        if parts:
            began = time.perf_counter()
            scores = compute(self._loaded, self._slab, parts)
            choosers = [part.row.answer.chooser for part in parts for _ in range(part.num_scored)]
            choices = Choices(scores, choosers)  # waits for the device
            self._speculation.observe(parts, time.perf_counter() - began)
            yield from self._advance(parts, choices)

    def _running(self) -> list[Answer]:
        return [live.answer for live in self._live.values()]

    def _clear(self) -> None:
        self._live.clear()
        self._prefill.clear()
        self._slab.clear()

    def _let_leave(self) -> None:
        """Free the slots of rows that the caller wants no more."""
        if leaving := self._ask_who_leaves():
            for live in list(self._live.values()):
                if live.answer.row.row_id in leaving:
                    self._free(live)

    def _free(self, live: LiveRow) -> None:
        del self._live[live.slot]
        self._prefill.leave(live)
        self._slab.drop(live.slot)

    def _num_held(self) -> int:
        return sum(slot.capacity for slot in self._live)

    def _admit(self) -> None:
        """Take waiting rows as long as slots and tokens allow; at least one if nothing runs."""
        admitted: list[LiveRow] = []
        num_tokens = self._num_held()
        while self._waiting and len(self._live) + len(admitted) < self._max_rows:
            num_tokens += self._waiting[0].num_needed
            if num_tokens > self._limits.max_batch_tokens and (self._live or admitted):
                break
            answer = self._waiting.popleft()
            shares = answer.row.row_id not in self._unshared
            admitted.append(LiveRow(answer, Slot(answer.num_needed), shares))
        if admitted:
            # first, so that no row is lost if memory runs out
            self._live |= {live.slot: live for live in admitted}
            self._prefill.join(admitted)
            self._slab.admit([live.slot for live in admitted])

    def _next_tokens(self) -> list[Part]:
        """Return what the rows whose prompts are done compute next, as they lie in the slab."""
        seated = (self._live[slot] for lane in self._slab.lanes for slot in lane.slots)
        rows = [live for live in seated if not live.in_prefill]
        drains = not (self._waiting or self._refills)
        drafts = self._speculation.plan(rows, drains=drains)
        return [
            Part(live, live.slot.length, [live.answer.token_ids[-1], *draft], 1 + len(draft))
            for live, draft in zip(rows, drafts, strict=True)
        ]

    def _advance(self, parts: Sequence[Part], choices: Choices) -> Iterator[Event]:
        """Give each row its next tokens; rows that end leave before their events are handed out."""
        ended, at = [], 0
        try:
            for part in parts:
                event = self._continue(part, choices, at) if part.num_scored else None
                at += part.num_scored
                if event is not None:
                    ended.append(event)
        finally:  # also where a later row's choice fails: those that ended have left already
            yield from ended

    def _continue(self, part: Part, choices: Choices, at: int) -> Event | None:
        """Give a row the tokens chosen from position `at` on, as far as its drafts were right."""
        live, end = part.row, at + part.num_scored
        for draft in (*part.drafts, None):
            token = choices.token(at)
            if token is None and part.drafts:
                live.drafts = False  # they may be to blame: once more without them
                break
            if token is None and self._begins_again(live):
                return None
            event = live.push(token)
            if event is not None:
                self._free(live)
                return event
            at += 1
            if token != draft:
                break
        live.slot.length = live.num_known - 1  # what was computed of wrong drafts is overwritten
        if not all(choices.is_finite(each) for each in range(at, end)):
            self._slab.wipe(live.slot.base + live.slot.length, live.slot.base + part.end)
        return None

    def _begins_again(self, live: LiveRow) -> bool:
        """Let a row without finite scores that began as another did be computed on its own.

        What was copied may be to blame: a row's values must never matter to another.
        """
        if not live.answer.num_cached:
            return False
        self._free(live)
        self._unshared.add(live.answer.row.row_id)
        self._waiting.appendleft(live.answer.afresh())
        return True
