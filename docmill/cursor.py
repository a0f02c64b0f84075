"""A place in a job's results, and how one waits there for more.

Decides how results are read page by page; what a result is, `docmill.results` says. May import
docmill.link.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from docmill.errors import ResultTimeout
from docmill.link import BLOCK_S, Link, pause
from docmill.results import Result
from docmill.status import FIELDS, JobStatus

#: Results fetched at once.
PAGE_RESULTS = 256

#: Seconds between two reads of results, so that those in quick succession share one.
PAUSE_S = 0.01

#: An entry of a stream, as the driver gives it.
Entry = tuple[bytes, dict[bytes, bytes]]


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
    """A place in a job's results, moved on by one short read after the other.

    Args:
        link: Where the job is.
        job_id: Whose results.
        to_status: Makes the job's status of its hash's values, or raises.
        timeout_s: The longest wait for the next result; None never ends.
        after: The `cursor` of the last result seen.
    """

    def __init__(
        self,
        link: Link,
        job_id: str,
        to_status: Callable[[Sequence[bytes | None]], JobStatus],
        timeout_s: float | None,
        after: str | None,
    ) -> None:
        self._link = link
        self._job_id = job_id
        self._to_status = to_status
        self._patience = Patience(timeout_s)
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
                f"job {self._job_id!r} gave no result for {self._patience.timeout_s:g} s; it is "
                f"{'paused' if status.is_paused else 'still running'}"
            )
        return results_of(self._link, self._job_id, entries)

    def _read(self) -> tuple[JobStatus, list[Entry]]:
        """Read the counts and then a page: a finished job with an empty page has no more."""
        link = self._link

        def read() -> list[Any]:
            pipe = link.client.pipeline(transaction=False)
            pipe.hmget(link.keys.job(self._job_id), FIELDS)
            pipe.xread({link.keys.results(self._job_id): self._last_id}, count=PAGE_RESULTS)
            replies: list[Any] = pipe.execute()
            return replies

        values, streams = link.run(read)
        return self._to_status(values), _entries(streams)

    def _block(self, longest_s: float) -> list[Entry]:
        """Wait for entries; BLOCK 0 would wait for ever, so one millisecond is the least."""
        link, key = self._link, self._link.keys.results(self._job_id)
        block_ms = max(1, int(longest_s * 1000))

        def read() -> Any:
            return link.client.xread({key: self._last_id}, count=PAGE_RESULTS, block=block_ms)

        return _entries(link.run(read))


def _entries(streams: Any) -> list[Entry]:
    """Return the entries of the one stream that was read."""
    return streams[0][1] if streams else []


def results_of(link: Link, job_id: str, entries: Sequence[Entry]) -> list[Result]:
    """Read a page of a job's result stream, with the bodies that several results share.

    Cost: One round trip where bodies are shared, else none.
    """
    shared = {fields[b"s"] for _, fields in entries if b"s" in fields and not fields.get(b"b")}
    bodies: dict[bytes, bytes | None] = {}
    if shared:
        wanted, key = sorted(shared), link.keys.bodies(job_id)
        found: Any = link.run(lambda: link.client.hmget(key, wanted))
        bodies = dict(zip(wanted, found, strict=True))
    return [
        Result.from_wire(entry_id, fields, bodies.get(fields.get(b"s", b"")))
        for entry_id, fields in entries
    ]
