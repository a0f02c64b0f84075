"""Which of the running documents nobody wants any more.

Decides how soon a cancellation is seen. Redis is asked from a thread of its own, so that the engine
never waits for it. May import docmill, redis and the shared modules in workers.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from docmill.connection import REDIS_ERRORS
from docmill.keys import Keys
from workers.leases import Lease

#: Between two looks: a cancelled document runs on for about that long.
_EVERY_S = 1.0


class Watcher:
    """Looks once a second whether running documents were cancelled, until the process is to stop.

    Args:
        client: A connection to Redis.
        keys: The shard's keys.
        running: Returns the leases that run now, by row id; called from the watcher's thread.
        stop: Ends it: what runs then is finished or handed back.
    """

    def __init__(
        self,
        client: Any,
        keys: Keys,
        running: Callable[[], Mapping[str, Lease]],
        stop: threading.Event,
    ) -> None:
        self._client = client
        self._keys = keys
        self._running = running
        self._stop = stop
        #: Rows that were cancelled when it was last looked; some may have ended since.
        self.unwanted: frozenset[str] = frozenset()

    def run(self) -> None:
        """Look until the process is to stop."""
        while not self._stop.wait(_EVERY_S):
            try:
                self.look()
            except REDIS_ERRORS:
                continue  # the reading thread logs the outage

    def look(self) -> None:
        """Look once. Cost: one round trip while none of the jobs has cancellations, else two."""
        by_job: defaultdict[str, dict[str, Lease]] = defaultdict(dict)
        for row_id, lease in self._running().items():
            by_job[lease.header.job_id][row_id] = lease
        jobs = list(by_job)
        with self._client.pipeline(transaction=False) as pipe:
            for job in jobs:
                pipe.hmget(self._keys.job(job), ("cancelled_at", "cancels"))
            states = pipe.execute() if jobs else []
        unwanted: list[str] = []
        for job, (cancelled_at, cancels) in zip(jobs, states, strict=True):
            if cancelled_at is not None:
                unwanted += by_job[job]
            elif cancels is not None:
                unwanted += self._cancelled_singly(job, by_job[job])
        self.unwanted = frozenset(unwanted)

    def _cancelled_singly(self, job: str, leases: Mapping[str, Lease]) -> list[str]:
        custom_ids = [lease.header.custom_id for lease in leases.values()]
        marks = self._client.smismember(self._keys.cancelled(job), custom_ids)
        return [row_id for row_id, mark in zip(leases, marks, strict=True) if mark]
