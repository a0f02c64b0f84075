"""A job seen from outside: how far it is, its results, and an end to it.

Decides how results are followed; changes nothing but by `cancel`. May import docmill.link and
docmill.wire.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from docmill.errors import JobNotFound, ResultExpired, ResultTimeout
from docmill.link import BLOCK_S, Link, pause
from docmill.progress import Reporter, show_progress
from docmill.results import Result

#: Results fetched at once.
PAGE_RESULTS = 256

#: Seconds between two reads of results, so that those in quick succession share one.
PAUSE_S = 0.01

#: Seconds between two looks at a job that is waited for.
POLL_S = 0.25

_COUNTERS = ("submitted", "succeeded", "failed", "cancelled", "expired", "running")
_FIELDS = (*_COUNTERS, "sealed", "cancelled_at", "created_at", "finished_at")

State = Literal["open", "running", "finished", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's counts at one moment.

    submitted = succeeded + failed + cancelled + expired + waiting + running, always. `state` is
    "open" while documents may still be added, and "finished" or "cancelled" once nothing is left to
    do. Moments are UNIX seconds.
    """

    job_id: str
    submitted: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    running: int
    is_sealed: bool
    cancelled_at: float | None
    created_at: float | None
    finished_at: float | None

    @property
    def done(self) -> int:
        """Documents that nothing more will happen to."""
        return self.succeeded + self.failed + self.cancelled + self.expired

    @property
    def waiting(self) -> int:
        """Documents that no engine has begun."""
        return self.submitted - self.done - self.running

    @property
    def is_finished(self) -> bool:
        """Whether every document is done and no more can come."""
        return self.is_sealed and self.done >= self.submitted

    @property
    def state(self) -> State:
        """The job's state in one word."""
        if self.is_finished:
            return "cancelled" if self.cancelled_at else "finished"
        return "running" if self.is_sealed else "open"

    def to_dict(self) -> dict[str, Any]:
        """Return all counts as plain values, for JSON."""
        counts = {name: getattr(self, name) for name in (*_COUNTERS, "waiting", "done")}
        moments = {name: getattr(self, name) for name in _FIELDS if name.endswith("_at")}
        return {"job_id": self.job_id, "state": self.state, **counts, **moments}


class Patience:
    """How long to wait for something; `timeout_s` None never ends."""

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self.renew()

    def renew(self) -> None:
        """Start waiting anew."""
        self._ends_at = math.inf if self.timeout_s is None else time.monotonic() + self.timeout_s

    @property
    def left_s(self) -> float:
        """Seconds left, not below zero."""
        return max(0.0, self._ends_at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.left_s <= 0


class Cursor:
    """A place in a job's results, moved on by one short read after the other."""

    def __init__(self, job: Job, timeout: float | None, after: str | None) -> None:
        self._job = job
        self._patience = Patience(timeout)
        self._last_id = (after or "0-0").encode()
        self._read_next_at = 0.0

    def poll(self) -> list[Result] | None:
        """Return the results that came since the last call, perhaps none; None at the job's end.

        Raises:
            ResultTimeout: None came for too long.

        Cost: Waits up to `BLOCK_S`.
        """
        pause(max(0.0, self._read_next_at - time.monotonic()))
        status, entries = self._read()
        if not entries and status.is_finished:
            return None
        if not entries:
            entries = self._block(min(self._patience.left_s, BLOCK_S))
        if entries:
            self._last_id = entries[-1][0]
            self._patience.renew()
            if len(entries) < PAGE_RESULTS:
                self._read_next_at = time.monotonic() + PAUSE_S
        elif self._patience.is_over:
            raise ResultTimeout(
                f"job {self._job.id!r} gave no result for {self._patience.timeout_s:g} s; it is "
                "still running"
            )
        return [Result.from_wire(entry_id, fields) for entry_id, fields in entries]

    def _read(self) -> tuple[JobStatus, list[Any]]:
        """Read the counts and then a page: a finished job with an empty page has no more."""
        link, job_id = self._job._link, self._job.id

        def read() -> list[Any]:
            pipe = link.client.pipeline(transaction=False)
            pipe.hmget(link.keys.job(job_id), _FIELDS)
            pipe.xread({link.keys.results(job_id): self._last_id}, count=PAGE_RESULTS)
            replies: list[Any] = pipe.execute()
            return replies

        values, streams = link.run(read)
        return self._job._to_status(values), _entries(streams)

    def _block(self, longest_s: float) -> list[Any]:
        """Wait for entries; BLOCK 0 would wait for ever, so one millisecond is the least."""
        link, key = self._job._link, self._job._link.keys.results(self._job.id)
        block_ms = max(1, int(longest_s * 1000))

        def read() -> Any:
            return link.client.xread({key: self._last_id}, count=PAGE_RESULTS, block=block_ms)

        return _entries(link.run(read))


class Job:
    """One job on one Redis. Made by `Client.submit` and `Client.job`; thread-safe."""

    def __init__(self, link: Link, job_id: str) -> None:
        self._link = link
        self._id = job_id

    def __repr__(self) -> str:
        """Name the job."""
        return f"Job({self._id!r})"

    @property
    def id(self) -> str:
        """The job's id; `Client.job(id)` comes back to it."""
        return self._id

    def status(self) -> JobStatus:
        """Return the job's counts.

        Raises:
            JobNotFound: There is no such job.
            ResultExpired: It ended and was kept for its lifetime.
            BrokerUnavailable: Redis was away for too long.

        Cost: One round trip.
        """
        key = self._link.keys.job(self._id)
        return self._to_status(self._link.run(lambda: self._link.client.hmget(key, _FIELDS)))

    def _to_status(self, values: list[bytes | None]) -> JobStatus:
        found = dict(zip(_FIELDS, values, strict=True))
        if found["created_at"] is None:
            raise self._missing()
        counts = {name: int(found[name] or 0) for name in _COUNTERS}
        return JobStatus(
            self._id,
            **counts,
            is_sealed=found["sealed"] == b"1",
            cancelled_at=_moment(found["cancelled_at"]),
            created_at=_moment(found["created_at"]),
            finished_at=_moment(found["finished_at"]),
        )

    def _missing(self) -> JobNotFound | ResultExpired:
        jobs = self._link.keys.jobs
        if self._link.run(lambda: self._link.client.zscore(jobs, self._id)) is None:
            return JobNotFound(
                f"there is no job {self._id!r} in namespace {self._link.keys.namespace!r}; check "
                "the id, the namespace and the Redis URL"
            )
        return ResultExpired(f"job {self._id!r} ended, and its results were kept for their time")

    def results(self, timeout: float | None = None, after: str | None = None) -> Iterator[Result]:
        """Yield every result in completion order, and end when the job does.

        Waits for results that are still to come; a Redis that restarts meanwhile is sat out.
        Cancelled documents have no result.

        Args:
            timeout: The longest wait for the next result, in seconds; None waits for as long as
                it takes.
            after: The `cursor` of the last result seen, to go on from there; None starts at the
                first.

        Raises:
            ResultTimeout: No result came in time; the job goes on and may be asked again.
            JobNotFound, ResultExpired: The job is not there, or not any more.
            MessageError: A result was written by another version of docmill.
        """
        cursor = Cursor(self, timeout, after)
        while (page := cursor.poll()) is not None:
            yield from page

    def wait(self, progress: bool = True, timeout: float | None = None) -> JobStatus:
        """Wait until the job ends and return its final counts.

        Args:
            progress: Show a bar on a terminal, or a line now and then elsewhere, on standard error.
            timeout: The longest wait in seconds; None waits for as long as it takes.

        Raises:
            ResultTimeout: The job has not ended in time; it goes on.
            JobNotFound, ResultExpired: The job is not there, or not any more.
        """
        patience = Patience(timeout)
        with show_progress(is_shown=progress) as reporter:
            while not (status := self._look(reporter, patience)).is_finished:
                time.sleep(POLL_S)
        return status

    def _look(self, reporter: Reporter, patience: Patience) -> JobStatus:
        """Look once for the end, and tell the reporter."""
        status = self.status()
        reporter.update_from(status)
        if not status.is_finished and patience.is_over:
            raise ResultTimeout(
                f"job {self._id!r} has not ended within {patience.timeout_s:g} s; {status.done} of "
                f"{status.submitted} documents are done"
            )
        return status

    def cancel(self) -> int:
        """Take back every document that no engine has begun; what runs still ends.

        Returns:
            How many documents were cancelled; 0 if the job was cancelled before.

        Raises:
            JobNotFound, ResultExpired: The job is not there, or not any more.
        """
        count = self._link.run(lambda: self._link.scripts.call("cancel", self._id))
        if count < 0:
            raise self._missing()
        return int(count)


def _moment(value: bytes | None) -> float | None:
    return None if value is None else float(value)


def _entries(streams: Any) -> list[Any]:
    """Return the entries of the one stream that was read."""
    return streams[0][1] if streams else []
