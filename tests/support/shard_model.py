"""What one shard must do, in plain Python: where each document is, and what each script replies.

Written from the scripts' headers, one method per script, with no more state than a caller could
name. `expected` says what must lie in Redis, in the words of `shard_state.observe`. Knows neither
Redis nor time: whatever waits is due when the caller says so.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from docmill.wire import OUTCOMES
from tests.support.shard_records import Doc, Job, Letter, Ticket

#: As in lua/_lib.lua: so many bytes or more are stored once where several results share them.
SHARED_BYTES = 1024


class Shard:
    """The model of one shard."""

    def __init__(self, max_docs: int) -> None:
        self.max_docs = max_docs
        self.jobs: dict[str, Job] = {}
        self.lying: list[Doc] = []
        self.leaders: dict[str, Doc] = {}
        self.followers: dict[str, list[Doc]] = {}
        self.cached: dict[str, bytes] = {}
        self.letters: list[Letter] = []

    # what callers do

    def open(self, name: str) -> bytes:
        """Open a job, or come back to it."""
        job = self.jobs.setdefault(name, Job(name))
        if job.is_cancelled:
            return b"CANCELLED"
        job.is_sealed = False
        return b"OK"

    def _refusal(self, job: Job | None, custom_id: str) -> bytes | None:
        if job is None:
            return b"CLOSED"
        if any(doc.custom_id == custom_id for doc in job.docs):
            return b"SEEN"
        if job.is_cancelled:
            return b"CANCELLED"
        return b"CLOSED" if job.is_finished else None

    def submit(self, name: str, doc: Doc) -> bytes:
        """Offer a document."""
        job = self.jobs.get(name)
        if refusal := self._refusal(job, doc.custom_id):
            return refusal
        if len(self.lying) >= self.max_docs:
            return b"FULL"
        assert job is not None
        doc.job = job
        job.docs.append(doc)
        doc.lie(doc.stream)
        self.lying.append(doc)
        return b"OK"

    def reject(self, name: str, doc: Doc, body: bytes) -> bytes:
        """Record a document that never entered."""
        job = self.jobs.get(name)
        if refusal := self._refusal(job, doc.custom_id):
            return refusal
        assert job is not None
        doc.job, doc.outcome, doc.result = job, "failed", ("rejected", body)
        job.docs.append(doc)
        return b"OK"

    def seal(self, name: str) -> int:
        """Say that no more documents come."""
        job = self.jobs.get(name)
        if job is not None:
            job.is_sealed = True
        return int(job is not None)

    def pause(self, name: str, on: bool) -> int:
        """Let a job rest, or go on."""
        job = self.jobs.get(name)
        if job is None:
            return -1
        if job.is_paused is on or (on and (job.is_cancelled or job.is_finished)):
            return 0
        job.is_paused = on
        return 1

    def cancel(self, name: str, custom_ids: Sequence[str]) -> int:
        """Cancel a job, or some of its documents."""
        job = self.jobs.get(name)
        if job is None:
            return -1
        if job.is_cancelled or job.is_finished:
            return 0
        if custom_ids:
            marked = {d.custom_id for d in job.docs} & set(custom_ids) - job.cancelled_ids
            job.cancelled_ids |= marked
            return len(marked)
        job.is_cancelled, job.is_sealed, job.is_paused = True, True, False
        waiting = [doc for doc in job.docs if not doc.outcome and not doc.is_running]
        for doc in waiting:
            doc.outcome = "cancelled"
        return len(waiting)

    def expire(self, name: str) -> None:
        """Forget a job that is over, as its keys' lifetimes do."""
        self.jobs.pop(name).is_gone = True

    # what preprocessing does

    def prepare(
        self, consumer: str, named: Sequence[tuple[Ticket, str, str | None, bytes]]
    ) -> Iterator[bytes]:
        """End intake entries: ticket, where to, fingerprint (None: refused), body if refused."""
        for ticket, ready, fp, body in named:
            doc = ticket.doc
            if not ticket.is_held_by(consumer):
                yield b"LOST"
            elif not doc.is_wanted:
                self._drop(doc)
                yield b"DROPPED"
            elif fp is None:
                self._settle(doc, "failed", "rejected", body)
                yield b"SETTLED"
            elif fp in self.cached:
                self._settle(doc, "succeeded", "cached", self.cached[fp], fp)
                yield b"CACHED"
            elif fp in self.leaders:
                self.followers.setdefault(fp, []).append(doc)
                doc.lie("follower")
                doc.fp = fp
                yield b"FOLLOWS"
            else:
                doc.fp, doc.n, doc.stream = fp, 1, ready
                doc.lie(ready)
                if fp and not doc.job.is_paused:
                    self.leaders[fp] = doc
                yield b"READY"

    # what engines do

    def begin(self, consumer: str, tickets: Sequence[Ticket]) -> Iterator[bytes]:
        """Start documents."""
        for at, ticket in enumerate(tickets):
            doc = ticket.doc
            if not ticket.is_held_by(consumer) or ticket in tickets[:at]:
                yield b"LOST"
            elif not doc.is_wanted:
                self._drop(doc)
                yield b"DROPPED"
            elif doc.job.is_paused:
                doc.is_running = False
                doc.lie("parked")
                self._release(doc)
                yield b"PARKED"
            else:
                doc.is_running = True
                yield b"RUN"

    def complete(
        self, consumer: str, named: Sequence[tuple[Ticket, str, bytes]], is_cached: bool
    ) -> Iterator[bytes]:
        """End documents: ticket, outcome and body of each."""
        for ticket, outcome, body in named:
            doc = ticket.doc
            if not ticket.is_held_by(consumer):
                yield b"LOST"
                continue
            yield b"OK"
            if outcome != "succeeded":
                self._settle(doc, outcome, "run", body)
                self._release(doc)
                continue
            followers = self.followers.get(doc.fp, []) if self.leaders.get(doc.fp) is doc else []
            self._settle(doc, outcome, "run", body, doc.fp if followers else "")
            for follower in followers:
                self._settle(follower, outcome, "follower", body, doc.fp)
            if self.leaders.get(doc.fp) is doc:
                del self.leaders[doc.fp]
                self.followers.pop(doc.fp, None)
            if doc.fp and is_cached:
                self.cached[doc.fp] = body

    def bury(self, consumer: str, ticket: Ticket, code: str, body: bytes) -> bytes:
        """Give a document up."""
        if not ticket.is_held_by(consumer):
            return b"LOST"
        self._bury(ticket.doc, code, body)
        return b"OK"

    def redeliver(
        self, owner: str, ticket: Ticket, counted: bool, is_later: bool, limit: int, body: bytes
    ) -> bytes:
        """Hand a document back; who asks was checked before."""
        doc = ticket.doc
        if not ticket.is_held_by(owner):
            return b"LOST"
        if not doc.is_wanted:
            self._drop(doc)
            return b"DROPPED"
        if counted and (doc.is_running or doc.stream.startswith("intake")):
            if doc.n >= limit:
                self._bury(doc, "delivery_limit", body)
                return b"DEAD"
            doc.n += 1
        doc.is_running = False
        doc.lie("later" if is_later else doc.stream)
        return b"LATER" if is_later else b"BACK"

    # what brings documents back

    def due(self, docs: Sequence[Doc]) -> int:
        """Bring back those whose time has come."""
        for doc in docs:
            if doc.is_wanted:
                doc.lie(doc.stream)
            else:
                self._drop(doc)
        return len(docs)

    def waiting(self, name: str) -> list[Doc]:
        """Return those in nobody's hands in a stream, or parked (`job:<id>:parked`)."""
        return [doc for doc in self.lying if _lies(doc)[0] == name and not doc.holder]

    def pass_deadlines(self, docs: Sequence[Doc], body: bytes) -> int:
        """End those of these whose deadline has passed."""
        late = [doc for doc in docs if doc.has_deadline]
        for doc in late:
            if doc.is_wanted:
                self._settle(doc, "expired", "rejected", body)
                self._release(doc)
            else:
                self._drop(doc)
        return len(late)

    def retry(self, letter: Letter) -> bytes:
        """Give a dead document another series of deliveries."""
        doc = letter.doc
        if letter not in self.letters:
            return b"GONE"
        if not letter.has_result or not doc.is_wanted:
            return b"EXPIRED"
        if len(self.lying) >= self.max_docs:
            return b"FULL"
        self.letters.remove(letter)
        doc.job.history[doc.request] = letter.history + 1
        doc.outcome, doc.result, doc.n = "", None, 1
        doc.lie(doc.stream)
        self.lying.append(doc)
        return b"OK"

    # what these share

    def _leave(self, doc: Doc) -> bool:
        was_running, doc.is_running = doc.is_running, False
        doc.lie("")
        self.lying.remove(doc)
        return was_running

    def _settle(self, doc: Doc, outcome: str, how: str, body: bytes, fp: str = "") -> None:
        job, was_running = doc.job, self._leave(doc)
        if job.is_gone or (job.is_cancelled and not was_running):
            return
        doc.outcome = outcome if was_running or not doc.is_singly_cancelled else "cancelled"
        if doc.outcome != "cancelled":
            is_shared = fp and len(body) >= SHARED_BYTES
            doc.result = how, job.bodies.setdefault(fp, body) if is_shared else body

    def _drop(self, doc: Doc) -> None:
        self._leave(doc)
        doc.outcome = "cancelled"
        self._release(doc)

    def _release(self, doc: Doc) -> None:
        if self.leaders.get(doc.fp) is not doc:
            return
        del self.leaders[doc.fp]
        for follower in self.followers.pop(doc.fp, []):
            follower.fp, follower.n = "", 1
            follower.lie(follower.stream)

    def _bury(self, doc: Doc, code: str, body: bytes) -> None:
        n, history = doc.n, doc.job.history.get(doc.request, 0) if not doc.job.is_gone else 0
        self._settle(doc, "failed", "run", body)
        self.letters.append(Letter(doc, code, n, doc.result is not None, history))
        self._release(doc)

    # what must lie in Redis

    def expected(self) -> dict[str, Any]:
        """Return what `shard_state.observe` must see."""
        return {
            "lying": {doc.request: [_lies(doc)] for doc in self.lying},
            "jobs": {name: _job(job) for name, job in self.jobs.items()},
            "results": {
                name: {doc.request: [doc.result] for doc in job.docs if doc.result}
                for name, job in self.jobs.items()
            },
            "backlog": (len(self.lying), sum(doc.size for doc in self.lying)),
            "running": {doc.request for doc in self.lying if doc.is_running},
            "leaders": {fp: doc.request for fp, doc in self.leaders.items()},
            "cached": self.cached,
            "open": {name for name, job in self.jobs.items() if not job.is_sealed},
            "parked": {doc.job.name for doc in self.lying if doc.place == "parked"},
            "dead": [
                (one.doc.request, one.reason, one.n, one.doc.stream, one.has_result, one.history)
                for one in self.letters
            ],
            "unknown": [],
        }


def _lies(doc: Doc) -> tuple[str, str, str, int, str]:
    place = f"job:{doc.job.name}:parked" if doc.place == "parked" else doc.place
    return place, doc.stream, doc.holder, 1 if place == "follower" else doc.n, doc.fp


def _job(job: Job) -> dict[str, Any]:
    return {
        "submitted": len(job.docs),
        **{outcome: sum(doc.outcome == outcome for doc in job.docs) for outcome in OUTCOMES},
        "running": sum(doc.is_running for doc in job.docs),
        "is_sealed": job.is_sealed,
        "is_paused": job.is_paused,
        "is_cancelled": job.is_cancelled,
        "is_finished": job.is_finished,
        "ids": {doc.custom_id for doc in job.docs},
        "cancelled_ids": job.cancelled_ids,
        "history": job.history,
        # every key of a job that is over ends with it, no other key of a job does
        "lifetimes": {job.is_over},
    }
