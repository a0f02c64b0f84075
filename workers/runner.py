"""Runs batches on the engine, and sees to it that every row of them ends.

Decides what happens when the engine fails: rows without an event are tried once more, each alone,
so that one of them cannot take its neighbours along; then they fail. An engine that fails on one
row after the other is broken, and is given no more: the rows are not at fault. Everything runs in
the thread that calls `run`. May import docmill, engine.base and the shared modules in workers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis

from docmill.errors import BrokerUnavailable, EngineError
from docmill.keys import GROUP
from docmill.scripts import Scripts
from engine.base import Engine, Event, Refill, Row, RowDone
from workers import log
from workers.batching import Batch, Waiting
from workers.completion import Serving, Writer
from workers.leases import Lease, Window
from workers.lifecycle import wall_clock
from workers.process import Process
from workers.streams import Outage, insist

#: Rows begun by one call, which Redis carries out in about 2 ms.
_CALL_SIZE = 256
#: Rows that failed alone, none succeeding in between, after which the engine is taken for broken.
_BROKEN_AFTER = 8


class Runner:
    """Answers rows from the window with one engine.

    Args:
        process: The process this runs in; its `stop` ends refilling.
        engine: Answers rows.
        window: Where rows come from.
        writer: Takes their results.
        serving: What answers; goes into results.
        clock: UNIX seconds, for deadlines.
    """

    def __init__(
        self,
        process: Process,
        engine: Engine,
        window: Window,
        writer: Writer,
        serving: Serving,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        self._process = process
        self._engine = engine
        self._window = window
        self._writer = writer
        self._serving = serving
        self._clock = clock
        self._scripts = Scripts(process.client, process.keys.prefix)
        self._outage = Outage(process.pause)
        self._running: dict[str, Lease] = {}
        self._num_served = 0
        self._num_failed_in_a_row = 0

    @property
    def is_broken(self) -> bool:
        """Whether the engine fails on everything."""
        return self._num_failed_in_a_row >= _BROKEN_AFTER

    def run(self, batch: Batch[Lease]) -> None:
        """Run a batch and what refills it, until every row has ended or is to be handed back."""
        self._num_served = 0
        rows = self._start(batch.bucket, batch.rows, self._process.stop.is_set)
        if not rows:
            return
        log.get().debug("batch.formed", bucket=batch.bucket, rows=len(rows))
        error = self._answer(rows, lambda room: self._refill(batch.bucket, room))
        for lease in list(self._running.values()):
            self._answer_alone(lease, error)
        if self.is_broken:
            log.get().error("engine.broken", failures=self._num_failed_in_a_row)
            self._process.stop.set()

    def _answer_alone(self, lease: Lease, error: EngineError) -> None:
        """Give a row that the engine left without an event a second try; then it fails."""
        if self.is_broken or self._process.stop.is_set():
            return  # handed back, for another worker to try
        log.get().warning("row.retried", code=error.code, **lease.ids)
        error = self._answer([lease.row()], None)
        if self._running.pop(lease.row_id, None) is not None:
            self._num_failed_in_a_row += 1
            self._fail(lease, error)

    def _answer(self, rows: Sequence[Row], refill: Refill | None) -> EngineError:
        """Run rows; return why those of them that are left over have no event."""
        try:
            for event in self._engine.run(rows, refill):
                self._process.progress.touch()
                self._end(event)
        except EngineError as error:
            log.get().warning("batch.failed", code=error.code, problem=error.message)
            return error
        except Exception as error:  # noqa: BLE001 - a model may raise anything; the worker lives on
            log.get().exception("batch.failed", rows=len(rows))
            return EngineError(f"{type(error).__name__}: {error}")
        return EngineError("the engine ended without an answer to this document")

    def _end(self, event: Event) -> None:
        lease = self._running.pop(event.row_id, None)
        if lease is None:
            log.get().error("event.unknown", row_id=event.row_id)
        elif isinstance(event, RowDone):
            self._num_failed_in_a_row = 0
            self._writer.put(self._serving.answer(lease, event))
        else:
            self._fail(lease, event.error)

    def _fail(self, lease: Lease, error: EngineError) -> None:
        log.get().warning("document.failed", code=error.code, problem=error.message, **lease.ids)
        self._writer.put(self._serving.failure(lease, error.code, error.message))

    def _refill(self, bucket: int, room: int) -> list[Row]:
        """Give the engine up to `room` more rows; none rather than wait for Redis."""
        self._process.progress.touch()
        if self._process.stop.is_set():
            return []
        num_tokens = sum(lease.num_tokens for lease in self._running.values())
        num_rows = max(len(self._running), self._window.limits.max_rows - room)
        taken = self._window.refill(
            bucket, num_rows=num_rows, num_tokens=num_tokens, num_served=self._num_served
        )
        return self._start(bucket, taken, lambda: True) if taken else []

    def _start(
        self, bucket: int, taken: Sequence[Waiting[Lease]], give_up: Callable[[], bool]
    ) -> list[Row]:
        """Mark rows as running in Redis and return those that may run.

        When Redis does not answer and `give_up` says so, all wait again.
        """
        leases = self._unexpired(row.item for row in taken)
        try:
            verdicts = self._begin(leases, give_up) if leases else []
        except BrokerUnavailable:
            self._window.put_back(bucket, [row for row in taken if row.item in leases])
            return []
        began_at = self._clock()
        started = [
            lease
            for lease, verdict in zip(leases, verdicts, strict=True)
            if self._admit(lease, verdict, began_at)
        ]
        self._num_served += len(started)
        return [lease.row() for lease in started]

    def _unexpired(self, leases: Iterable[Lease]) -> list[Lease]:
        now = self._clock()
        kept = []
        for lease in leases:
            deadline_at = lease.header.deadline_at
            if deadline_at is None or now < deadline_at:
                kept.append(lease)
            else:
                self._writer.put(self._serving.expiry(lease))
        return kept

    def _begin(self, leases: Sequence[Lease], give_up: Callable[[], bool]) -> list[Any]:
        if len(leases) > _CALL_SIZE:
            first = self._begin(leases[:_CALL_SIZE], give_up)
            return first + self._begin(leases[_CALL_SIZE:], give_up)
        owned = [value for lease in leases for value in lease.named((b"i", b"j", b"b", b"f"))]
        try:
            verdicts: list[Any] = insist(
                lambda: self._scripts.call("begin", GROUP, self._process.consumer, *owned),
                self._outage,
                give_up,
            )
        except redis.ResponseError as error:
            if len(leases) > 1:  # one of them is at fault: find it, let the others run
                return [verdict for lease in leases for verdict in self._begin([lease], give_up)]
            log.get().error("lease.refused", problem=str(error), **leases[0].ids)
            return [b"LOST"]
        return verdicts

    def _admit(self, lease: Lease, verdict: bytes, began_at: float) -> bool:
        if verdict == b"RUN":
            lease.began_at = began_at
            self._running[lease.row_id] = lease
            return True
        self._window.release([(lease.stream, lease.entry_id)])
        if verdict == b"DROPPED":  # its job was cancelled
            log.get().debug("document.dropped", **lease.ids)
        else:
            log.get().warning("lease.lost", **lease.ids)
        return False
