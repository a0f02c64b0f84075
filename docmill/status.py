"""A job's counts at one moment: what its hash holds, read and named.

Pure: no I/O and no clock. May import nothing but the standard library.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

#: What every consumer says of itself.
_SAID = dict.fromkeys(("role", "host", "pid", "state"))

_COUNTERS = ("submitted", "succeeded", "failed", "cancelled", "expired", "running")
_MOMENTS = ("created_at", "paused_at", "cancelled_at", "finished_at")

#: The fields of a job's hash that its status is made of, in the order of `JobStatus.from_wire`.
FIELDS = (*_COUNTERS, "sealed", *_MOMENTS)

State = Literal["open", "running", "paused", "finished", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's counts at one moment.

    submitted = succeeded + failed + cancelled + expired + waiting + running, always. `state` is
    "open" while documents may still be added, "paused" while no engine begins the job's documents
    (those that run still end), and "finished" or "cancelled" once nothing is left to do. Moments
    are UNIX seconds.
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
    paused_at: float | None = None

    @classmethod
    def from_wire(cls, job_id: str, values: Sequence[bytes | None]) -> Self | None:
        """Read the values of `FIELDS`; None if there is no such job."""
        found = dict(zip(FIELDS, values, strict=True))
        if found["created_at"] is None:
            return None
        fields: dict[str, Any] = {name: int(found[name] or 0) for name in _COUNTERS}
        fields |= {name: _moment(found[name]) for name in _MOMENTS}
        return cls(job_id, is_sealed=found["sealed"] == b"1", **fields)

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
    def is_paused(self) -> bool:
        """Whether what waits is held back until the job is resumed."""
        return self.paused_at is not None and not self.is_finished

    @property
    def state(self) -> State:
        """The job's state in one word."""
        if self.is_finished:
            return "cancelled" if self.cancelled_at else "finished"
        if self.is_paused:
            return "paused"
        return "running" if self.is_sealed else "open"

    def to_dict(self) -> dict[str, Any]:
        """Return all counts as plain values, for JSON."""
        counts = {name: getattr(self, name) for name in (*_COUNTERS, "waiting", "done")}
        moments = {name: getattr(self, name) for name in _MOMENTS}
        return {"job_id": self.job_id, "state": self.state, **counts, **moments}


def _moment(value: bytes | None) -> float | None:
    return None if value is None else float(value)


def read_consumers(shown: Mapping[bytes, bytes]) -> dict[str, dict[str, Any]]:
    """Read what consumers say of themselves; what is no consumer's word is passed over."""
    found = {}
    for name, value in shown.items():
        try:
            found[name.decode()] = _SAID | json.loads(value)
        except (ValueError, TypeError):  # anybody may have written anything
            continue
    return found
