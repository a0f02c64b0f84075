"""Runs batches on the engine, and sees to it that every row of them ends.

Decides what happens when the engine fails: rows without an event are tried once more, each alone,
so that one of them cannot take its neighbours along; what becomes of a row that fails is decided in
workers.retry. An engine that fails on one row after the other is broken, and is given no more: the
rows are not at fault. Everything runs in the thread that calls `run`. May import docmill,
engine.base and the shared modules in workers.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import redis

from docmill.errors import BrokerUnavailable, EngineFault
from docmill.keys import GROUP
from docmill.scripts import Scripts
from engine.base import Engine, Event, Refill, Row, RowDone
from workers import log, retry
from workers.batching import Batch, Waiting
from workers.cancellation import Watcher
from workers.completion import Serving, Writer
from workers.leases import Lease, Window, note_lost
from workers.lifecycle import wall_clock
from workers.process import Process
from workers.retry import Trouble
from workers.streams import Outage, insist

#: Rows begun by one call, which Redis carries out in about 2 ms.
_CALL_SIZE = 256
#: Rows that failed alone, none succeeding in between, after which the engine is taken for broken.
_BROKEN_AFTER = 8
#: Between two looks whether results are written.
_LOOK_S = 0.002
_SILENCE = Trouble(
    EngineFault.code, "the engine ended without an answer to this document", is_retryable=True
)


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
        self._random = secrets.SystemRandom()
        self._running: dict[str, Lease] = {}
        self.watcher = Watcher(process.client, process.keys, self._snapshot, process.stop)
        self._num_served = 0
        self._num_failed_in_a_row = 0

    @property
    def is_broken(self) -> bool:
        """Whether the engine fails on everything."""
        return self._num_failed_in_a_row >= _BROKEN_AFTER

    def run(self, batch: Batch[Lease]) -> None:
        """Run a batch and what refills it, until every row has ended or is to be handed back."""
        if not batch.runs_alone:
            self._run(batch, lambda room: self._refill(batch.bucket, room))
            return
        # what is unwritten while a document ends this worker counts as running, and would be blamed
        self._wait_for_writes(num_out=1)
        self._run(batch, None)
        self._wait_for_writes(num_out=0)

    def _run(self, batch: Batch[Lease], refill: Refill | None) -> None:
        self._num_served = 0
        rows = self._start(batch.bucket, batch.rows, self._process.stop.is_set)
        if not rows:
            return
        log.get().debug("batch.formed", bucket=batch.bucket, rows=len(rows))
        trouble = self._answer(rows, refill)
        for lease in list(self._running.values()):
            self._end_alone(lease, trouble, was_alone=batch.runs_alone)
        if self.is_broken:
            log.get().error("engine.broken", failures=self._num_failed_in_a_row)
            self._process.stop.set()

    def _wait_for_writes(self, num_out: int) -> None:
        while self._window.num_out() > num_out and not self._process.stop.is_set():
            self._process.pause(_LOOK_S)

    def _end_alone(self, lease: Lease, trouble: Trouble, *, was_alone: bool) -> None:
        """Give a row that the engine left without an event a second try; then it fails."""
        if self.is_broken or self._process.stop.is_set():
            return  # handed back, for another worker to try
        if not was_alone and lease.row_id in self._running:
            log.get().warning("row.retried", code=trouble.code, **lease.ids)
            trouble = self._answer([lease.row()], None)
        if self._running.pop(lease.row_id, None) is not None:
            self._num_failed_in_a_row += 1
            self._fail(lease, trouble)

    def _answer(self, rows: Sequence[Row], refill: Refill | None) -> Trouble:
        """Run rows; return why those of them that are left over have no event."""
        try:
            for event in self._engine.run(rows, refill, self._step):
                self._process.progress.touch()
                self._end(event)
        except Exception as error:  # noqa: BLE001 - a model may raise anything; the worker lives on
            trouble = retry.trouble(error, EngineFault.code)
            log.get().exception(
                "batch.failed", rows=len(rows), code=trouble.code, trace=trouble.trace
            )
            return trouble
        return _SILENCE

    def _step(self) -> Collection[str]:
        """Note that the engine moves; name the rows that nobody wants any more."""
        self._process.progress.touch()
        leaving = self.watcher.unwanted and self.watcher.unwanted & self._running.keys()
        for row_id in leaving:
            lease = self._running.pop(row_id)
            log.get().debug("document.cancelled", **lease.ids)
            self._writer.put(self._serving.cancellation(lease))
        return leaving

    def _snapshot(self) -> Mapping[str, Lease]:
        return self._running.copy()  # atomic: the interpreter is not given away inside

    def _end(self, event: Event) -> None:
        lease = self._running.pop(event.row_id, None)
        if lease is None:
            log.get().error("event.unknown", row_id=event.row_id)
        elif isinstance(event, RowDone):
            self._num_failed_in_a_row = 0
            self._writer.put(self._serving.answer(lease, event))
        else:
            self._fail(lease, retry.trouble(event.error))

    def _fail(self, lease: Lease, trouble: Trouble) -> None:
        limit = self._process.settings.max_deliveries
        verdict = retry.decide(trouble, lease.delivery_count, limit, self._random.random())
        log.get().warning(
            "document.failed",
            code=trouble.code,
            problem=trouble.message,
            trace=trouble.trace,
            again_s=verdict.delay_s if isinstance(verdict, retry.Again) else None,
            **lease.ids,
        )
        self._writer.put(self._serving.failure(lease, trouble, verdict))

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
        started, refused = [], []
        for lease, verdict in zip(leases, verdicts, strict=True):
            if verdict == b"RUN":
                lease.began_at = began_at
                self._running[lease.row_id] = lease
                started.append(lease)
            else:  # cancelled, put aside until its job goes on, or somebody else's
                refused.append((lease, verdict))
        if refused:
            note_lost([lease for lease, verdict in refused if verdict == b"LOST"])
            self._window.release((lease.stream, lease.entry_id) for lease, _ in refused)
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
