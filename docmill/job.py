"""A job seen from outside: how far it is, its results, and what can be done to it.

Decides nothing about how results are read (`docmill.cursor`) or which failures can be retried
(`docmill.retrying`). May import docmill.link.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from docmill.cursor import Cursor, Patience
from docmill.errors import JobCancelled, JobNotFound, JobRejected, ResultExpired, ResultTimeout
from docmill.link import Link
from docmill.parts import parts_of
from docmill.progress import Reporter, show_progress
from docmill.results import Result
from docmill.retrying import RetryReport, retry_failed
from docmill.status import FIELDS, JobStatus

__all__ = ["Job", "JobStatus", "RetryReport"]

#: Seconds between two looks at a job that is waited for.
POLL_S = 0.25

#: Custom ids that one call carries.
_IDS_AT_ONCE = 1000


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
        return self._to_status(self._link.run(lambda: self._link.client.hmget(key, FIELDS)))

    def _to_status(self, values: Sequence[bytes | None]) -> JobStatus:
        status = JobStatus.from_wire(self._id, values)
        if status is None:
            raise self._missing()
        return status

    def _missing(self) -> JobNotFound | ResultExpired:
        link = self._link
        opened_at = link.run(lambda: link.client.zscore(link.keys.jobs, self._id))
        if opened_at is None:
            return JobNotFound(
                f"there is no job {self._id!r} in namespace {link.keys.namespace!r}; check the id, "
                "the namespace and the Redis URL"
            )
        opened = datetime.fromtimestamp(opened_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return ResultExpired(
            f"job {self._id!r}, opened {opened}, has ended, and its results were kept for their "
            "time (result_ttl); to have answers again, submit its documents again"
        )

    def results(self, timeout: float | None = None, after: str | None = None) -> Iterator[Result]:
        """Yield every result in completion order, and end when the job does.

        Waits for results that are still to come, also while the job is paused; a Redis that
        restarts meanwhile is sat out. Cancelled documents have no result.

        A failed document that is retried (`retry`) gives another result later, and that one
        replaces the failure. Who reads only afterwards never sees the failure.

        Args:
            timeout: The longest wait for the next result, in seconds; None waits for as long as
                it takes.
            after: The `cursor` of the last result seen, to go on from there; None starts at the
                first.

        Raises:
            ResultTimeout: No result came in time; the job goes on and may be asked again.
            JobNotFound, ResultExpired: The job is not there, or not any more.
        """
        cursor = self._cursor(timeout, after)
        while (page := cursor.poll()) is not None:
            yield from page

    def _cursor(self, timeout: float | None, after: str | None) -> Cursor:
        return Cursor(self._link, self._id, self._to_status, timeout, after)

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
        is_told = reporter.is_shown and status.done < status.submitted
        reporter.update_from(status, str(parts_of(self._link, self._id)) if is_told else "")
        if not status.is_finished and patience.is_over:
            raise ResultTimeout(
                f"job {self._id!r} has not ended within {patience.timeout_s:g} s; {status.done} of "
                f"{status.submitted} documents are done"
            )
        return status

    def cancel(self, custom_ids: Iterable[str] | None = None) -> int:
        """Take documents back; what an engine runs now is stopped by its worker.

        Documents that are done keep their results.

        Args:
            custom_ids: Whose documents; None cancels the whole job, which takes no more then.

        Returns:
            How many waiting documents were cancelled with the job, or how many of the ids were
            marked now (those of documents that are done among them, which changes nothing); 0 if
            the job has ended or was cancelled before.

        Raises:
            JobRejected: `custom_ids` is a single string.
            JobNotFound, ResultExpired: The job is not there, or not any more.
        """
        if custom_ids is None:
            return self._steer("cancel")
        if isinstance(custom_ids, str):
            raise JobRejected("custom_ids must be several ids; a single one is [id]")
        ids = list(dict.fromkeys(custom_ids))
        chunks = (ids[at : at + _IDS_AT_ONCE] for at in range(0, len(ids), _IDS_AT_ONCE))
        return sum(self._steer("cancel", *chunk) for chunk in chunks)

    def _unknown(self, custom_ids: Sequence[str]) -> list[str]:
        """Return those of these ids that no document of the job has."""
        if not custom_ids:
            return []
        key = self._link.keys.custom_ids(self._id)
        found = self._link.run(lambda: self._link.client.smismember(key, custom_ids))
        return [
            custom_id for custom_id, is_there in zip(custom_ids, found, strict=True) if not is_there
        ]

    def pause(self) -> bool:
        """Let the job rest: no engine begins its documents, and those that run still end.

        Its documents may still be submitted and prepared, and `results` and `wait` go on waiting.

        Returns:
            Whether that changed anything; False if it was paused before, or has ended.

        Raises:
            JobNotFound, ResultExpired: The job is not there, or not any more.
        """
        return self._steer("pause", 1) > 0

    def resume(self) -> bool:
        """Let a paused job go on.

        Returns:
            Whether that changed anything; False if it was not paused.

        Raises:
            JobNotFound, ResultExpired: The job is not there, or not any more.
        """
        return self._steer("pause", 0) > 0

    def _steer(self, script: Literal["cancel", "pause"], *args: str | int) -> int:
        """Call a script that answers with a count, or -1 where there is no such job."""
        count = int(self._link.run(lambda: self._link.scripts.call(script, self._id, *args)))
        if count < 0:
            raise self._missing()
        return count

    def retry(
        self, failed: Literal[True] = True, codes: Iterable[str] | None = None
    ) -> RetryReport:
        """Run again what failed, and nothing else.

        Documents whose work failed are kept as dead letters; they go back to where they were, with
        all their deliveries before them. The job runs again, and their failed results are gone;
        see `results` for readers that saw them. Of documents that were refused nothing is kept:
        they are counted, and have to be submitted again (under another job id).

        Args:
            failed: Only what failed can be retried.
            codes: Only failures with these error codes; None means all.

        Raises:
            JobCancelled: The job was cancelled, so nothing of it runs any more.
            JobRejected: `codes` is a single string.
            JobNotFound, ResultExpired: The job is not there, or not any more.

        Cost: Reads the headers of all dead letters of the shard; where not every failure of the job
            is kept, its results as well.
        """
        if isinstance(codes, str):
            raise JobRejected("codes must be several error codes; a single one is [code]")
        status = self.status()
        if status.cancelled_at is not None:
            raise JobCancelled(f"job {self._id} was cancelled; submit its documents as another job")
        return retry_failed(self._link, self._id, frozenset(codes or ()), status.failed)
