"""What every running batch does alike, whatever computes it.

Decides how rows are accepted, asked for and let go, and how a batch begins again when memory runs
out. May import docmill.errors and the modules of this package below it.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from docmill.errors import DeviceOutOfMemory
from engine.answer import Answer, without_refused
from engine.base import Event, Refill, Row, RowFailed, Step
from engine.device import is_out_of_memory, release_memory
from engine.loading import LoadedModel
from engine.options import Limits
from engine.sharing import in_groups


class RunningBatch(ABC):
    """One call of `run`: the rows that wait, and what the caller is asked while it goes on."""

    def __init__(
        self, loaded: LoadedModel, limits: Limits, refill: Refill | None, step: Step | None
    ) -> None:
        self._loaded = loaded
        self._limits = limits
        self._max_rows = limits.max_rows
        self._refill = refill
        self._refills = refill is not None  # whether rows came when they were last asked for
        self._step = step
        self._waiting: deque[Answer] = deque()

    @abstractmethod
    def run(self, rows: Sequence[Row]) -> Iterator[Event]:
        """Answer rows; see `engine.base.Engine.run`."""

    def _accept(self, rows: Sequence[Row]) -> Iterator[Event]:
        loaded = self._loaded
        return without_refused(
            rows,
            loaded.context_len,
            loaded.vocab_size,
            lambda row: self._waiting.append(Answer(row, loaded.detokenizer, loaded.eos_ids)),
        )

    def _ask_for_more(self, num_live: int = 0) -> Sequence[Row]:
        """Ask for rows to fill the free slots that nobody waits for yet."""
        free = self._max_rows - num_live - len(self._waiting)
        if self._refill is None or free <= 0:
            return ()
        more = self._refill(free)
        self._refills = bool(more)
        return more

    def _ask_who_leaves(self) -> Collection[str]:
        """Call before each pass; rows that still wait leave here, the others are the caller's."""
        leaving = self._step() if self._step is not None else ()
        if leaving:
            kept = (answer for answer in self._waiting if answer.row.row_id not in leaving)
            self._waiting = deque(kept)
        return leaving

    def _start_smaller(self, answers: Sequence[Answer], num_rows: int) -> Iterator[Event]:
        """After `num_rows` ran out of memory: begin again with half, or give up a single one.

        Once the row that fits nowhere is found, the others run together as before: it costs them
        as many failed passes as halving takes.

        `answers`: those of them that have not ended.
        """
        release_memory()
        if num_rows > 1:
            self._max_rows = num_rows // 2
            self._waiting.extendleft(answer.afresh() for answer in reversed(answers))
            return
        self._max_rows = self._limits.max_rows
        for answer in answers:
            shape = {"rows": 1, "tokens": answer.num_needed}
            message = f"out of memory with this document alone ({answer.num_needed} tokens)"
            yield RowFailed(answer.row.row_id, DeviceOutOfMemory(message, **shape))


class OpenBatch(RunningBatch):
    """A batch that rows join and leave while it runs, turn by turn."""

    def __init__(
        self, loaded: LoadedModel, limits: Limits, refill: Refill | None, step: Step | None
    ) -> None:
        super().__init__(loaded, limits, refill, step)
        self._exhausted = False

    def run(self, rows: Sequence[Row]) -> Iterator[Event]:
        """Answer rows; see `engine.base.Engine.run`."""
        try:
            yield from self._accept(rows)
            while not self._exhausted:
                retreats = False
                try:
                    yield from self._turn()
                except Exception as error:
                    retreats = is_out_of_memory(error) and bool(self._running())
                    if not retreats:
                        raise
                if retreats:  # out here, where the failed pass' tensors are gone
                    answers = self._running()
                    self._clear()
                    yield from self._start_smaller(answers, len(answers))
        finally:
            self._clear()

    @abstractmethod
    def _turn(self) -> Iterator[Event]:
        """Let rows join and leave, and compute something."""

    @abstractmethod
    def _admit(self) -> None:
        """Take waiting rows as long as there is room; at least one if nothing runs."""

    @abstractmethod
    def _running(self) -> list[Answer]:
        """Return the answers of the rows that have joined and not ended."""

    @abstractmethod
    def _clear(self) -> None:
        """Let every row go and free its memory."""

    def _let_join(self) -> Iterator[Event]:
        """Let rows join if there is room; note when there is nothing more to do."""
        num_live = len(self._running())
        if self._may_admit(num_live):
            more = self._ask_for_more(num_live)
            yield from self._accept(more)
            self._admit()
            self._exhausted = not (more or self._running())

    def _accept(self, rows: Sequence[Row]) -> Iterator[Event]:
        """Accept rows, those that begin alike one after another."""
        return super()._accept([rows[index] for index in in_groups([row.prompt for row in rows])])

    def _may_admit(self, num_live: int) -> bool:
        """Say whether enough slots are free for rows to join; at a row's end only, unless empty."""
        free = self._max_rows - num_live
        return not num_live or free >= max(1, self._limits.refill_share * self._max_rows)
