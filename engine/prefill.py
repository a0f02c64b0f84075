"""Which prompt tokens the next pass computes.

Decides how prompts are cut into passes of bounded size, and which rows take their beginning from
another instead. Pure: knows rows and lengths, not tensors. May import engine.live and
engine.sharing.
"""

from collections import deque
from collections.abc import Iterable

from engine.live import LiveRow, Part
from engine.sharing import Beginnings


class Prefill:
    """The rows that have joined and whose prompts are to be computed, in order.

    A row begins only when those before it are complete or complete in the same pass. So whatever
    prompt a beginning can be taken from is in the slab by the time it is copied.
    """

    def __init__(self) -> None:
        self._queue: deque[LiveRow] = deque()
        self._held: Beginnings[LiveRow] = Beginnings()

    def join(self, rows: Iterable[LiveRow]) -> None:
        """Let rows queue."""
        self._queue.extend(rows)

    def leave(self, row: LiveRow) -> None:
        """Forget a row, which may be computed already."""
        self._held.discard(row.prompt, row)
        if row in self._queue:
            self._queue.remove(row)

    def clear(self) -> None:
        """Forget every row."""
        self._queue.clear()
        self._held = Beginnings()

    def next_parts(self, budget: int) -> list[Part]:
        """Return the next tokens of the rows in front, `budget` at most.

        Prompts are cut wherever the budget ends: passes of equal size keep the gaps between the
        tokens of other rows even.
        """
        parts = []
        while self._queue and budget > 0:
            part = self._next_part(self._queue[0], budget)
            budget -= len(part.ids)
            parts.append(part)
            if part.num_scored:
                self._queue.popleft()
        return parts

    def _next_part(self, row: LiveRow, budget: int) -> Part:
        start, source = row.slot.length, None
        if not start:
            row.answer.start()
            if row.shares and (found := self._held.longest(row.prompt)):
                source, start = found
                row.answer.num_cached = start
            self._held.add(row.prompt, row)
        ids = row.prompt[start : start + budget]
        complete = start + len(ids) == len(row.prompt)
        return Part(row, start, ids, int(complete), source)
