"""What one shard must do, in plain Python: where each document is, and what each script replies.

Written from the scripts' headers, one method per script, with no more state than a caller could
name. `expected` says what must lie in Redis, in the words of `shard_state.observe`. Knows neither
Redis nor time: whatever waits is due when the caller says so.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from docmill.keys import parts_job
from docmill.wire import OUTCOMES
from tests.support.shard_ends import Ends
from tests.support.shard_records import Doc, Job, Letter, Ticket, told


class Shard(Ends):
    """The model of one shard."""

    def __init__(self, max_docs: int) -> None:
        super().__init__()
        self.max_docs = max_docs

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
        for one in (job, *_parts_of(job.docs)):
            one.is_paused = on
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
            num_cancelled = len(marked)
            whole = [doc for doc in job.docs if marked and doc.custom_id in custom_ids]
        else:
            num_cancelled = self._cancel_waiting(job)
            whole = job.docs
        for parts in _parts_of(whole):
            self._cancel_waiting(parts)
        self._end_call()
        return num_cancelled

    def expire(self, name: str) -> None:
        """Forget a job that is over, as its keys' lifetimes do."""
        self.jobs.pop(name).is_gone = True

    # what preprocessing does

    def prepare(
        self, consumer: str, named: Sequence[tuple[Ticket, str, str | None, bytes]]
    ) -> Iterator[bytes]:
        """End intake entries: ticket, where to, fingerprint (None: refused), body if refused."""
        used = set()
        owned: dict[int, str | None] = {}
        for ticket, _, fp, _ in named:
            if ticket.is_held_by(consumer):
                owned.setdefault(id(ticket.doc), fp)
        self.figures["lookups"] += sum(bool(fp) for fp in owned.values())
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
            elif fp in self.answers.bodies:
                self._settle(doc, "succeeded", "cached", self.answers.bodies[fp], fp)
                self.figures.update(("cached", "tokens_saved"))
                used.add(fp)
                yield b"CACHED"
            elif fp in self.leaders:
                self._follow(doc, fp, 1)
                yield b"FOLLOWS"
            else:
                doc.come(ready, fp)
                doc.forget_parts()
                if fp and not doc.job.is_paused:
                    self.leaders[fp] = doc, 0
                yield b"READY"
        self.answers.touch(used)
        self._end_call()

    def split(self, consumer: str, ticket: Ticket, parts: Sequence[Doc]) -> bytes:
        """Replace a document by its parts."""
        doc = ticket.doc
        if not ticket.is_held_by(consumer):
            return b"LOST"
        if not doc.is_wanted:
            self._drop(doc)
            return b"DROPPED"
        job = Job(parts_job(doc.job.name, doc.request, doc.rounds), list(parts), is_sealed=True)
        job.whole, job.is_paused = doc, doc.job.is_paused
        self.jobs[job.name] = job
        for part in parts:
            part.job = job
            part.lie(part.stream)
            self.lying.append(part)
        doc.parts, doc.n = job, 1
        doc.lie("whole")
        return b"SPLIT"

    # what engines do

    def begin(self, consumer: str, tickets: Sequence[Ticket]) -> Iterator[bytes]:
        """Start documents."""
        ending: dict[bytes, list[Doc]] = {b"DROPPED": [], b"PARKED": []}
        for at, ticket in enumerate(tickets):
            doc = ticket.doc
            if not ticket.is_held_by(consumer) or ticket in tickets[:at]:
                yield b"LOST"
                continue
            verdict = self._judge(doc)
            ending.get(verdict, []).append(doc)
            yield verdict
        for doc in ending[b"DROPPED"]:
            self._drop(doc)
        for doc in ending[b"PARKED"]:
            self._park(doc)
        self._end_call()

    def _judge(self, doc: Doc) -> bytes:
        if not doc.is_wanted:
            return b"DROPPED"
        if doc.job.is_paused:
            return b"PARKED"
        if doc.fp and doc.fp not in self.leaders and doc.fp in self.answers.bodies:
            self._settle(doc, "succeeded", "cached", self.answers.bodies[doc.fp], doc.fp)
            self.answers.touch({doc.fp})
            self.figures["cached"] += 1
            return b"CACHED"
        if doc.fp in self.leaders and not self.leads(doc):
            self._follow(doc, doc.fp, 0)
            return b"FOLLOWS"
        if doc.fp and not self.leads(doc):
            self.leaders[doc.fp] = doc, 0
        doc.is_running = True
        return b"RUN"

    def complete(
        self, consumer: str, named: Sequence[tuple[Ticket, str, bytes]], max_bytes: int
    ) -> Iterator[bytes]:
        """End documents: ticket, outcome and body of each. `max_bytes`: 0 if none is kept."""
        kept = {}
        for ticket, outcome, body in named:
            doc = ticket.doc
            if not ticket.is_held_by(consumer):
                yield b"LOST"
                continue
            yield b"OK"
            if outcome != "succeeded":
                self._settle(doc, outcome, "run", body)
                self._pass_lead(doc)
                continue
            followers = self.followers.pop(doc.fp, [])
            self._settle(doc, outcome, "run", body, doc.fp if followers else "")
            for follower in followers:
                self._settle(follower, outcome, "follower", body, doc.fp)
                self.figures["tokens_saved"] += follower.num_tokens
            if self.leads(doc):
                del self.leaders[doc.fp]
            if doc.fp and max_bytes:
                kept[doc.fp] = body
        self.figures["evicted"] += self.answers.keep(kept, max_bytes)
        self._end_call()

    def trim(self, aged: Sequence[str], max_bytes: int) -> int:
        """Forget the answers that nobody used for long, those that are gone, and those too many."""
        gone = set(self.answers.sizes).difference(self.answers.bodies).union(aged)
        for fp in gone:
            self.answers.forget(fp)
        num_evicted = self.answers.evict(max_bytes)
        self.figures["evicted"] += num_evicted
        return len(gone) + num_evicted

    def bury(self, consumer: str, ticket: Ticket, code: str, body: bytes) -> bytes:
        """Give a document up."""
        if not ticket.is_held_by(consumer):
            return b"LOST"
        self._bury(ticket.doc, code, body)
        self._end_call()
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
            self._end_call()
            return b"DROPPED"
        if counted and (doc.is_running or doc.stream.startswith("intake")):
            if doc.n >= limit:
                self._bury(doc, "delivery_limit", body)
                self._end_call()
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
        self._end_call()
        return len(docs)

    def waiting(self, name: str) -> list[Doc]:
        """Return those in nobody's hands in a stream, or parked (`job:<id>:parked`)."""
        return [doc for doc in self.lying if doc.lying.place == name and not doc.holder]

    def pass_deadlines(self, name: str, body: bytes) -> tuple[int, int]:
        """End those whose deadline has passed; returns how many, and how many were looked at."""
        num_late, seen = 0, set[Doc]()
        # who leads in place of one that ends may lie behind it, and is looked at as well
        while docs := [doc for doc in self.waiting(name) if doc not in seen]:
            for doc in docs:
                seen.add(doc)
                if doc.has_deadline:
                    num_late += 1
                    self._pass_deadline(doc, body)
        self._end_call()
        return num_late, len(seen)

    def _pass_deadline(self, doc: Doc, body: bytes) -> None:
        if doc.is_wanted:
            self._settle(doc, "expired", "rejected", body)
            self._pass_lead(doc)
        else:
            self._drop(doc)

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

    # what must lie in Redis

    def expected(self) -> dict[str, Any]:
        """Return what `shard_state.observe` must see."""
        return {
            "lying": {doc.request: [doc.lying] for doc in self.lying},
            "jobs": {name: _job(job) for name, job in self.jobs.items()},
            "results": {
                name: {
                    doc.request: [(doc.result[0], told(doc.result[1]))]
                    for doc in job.docs
                    if doc.result
                }
                for name, job in self.jobs.items()
            },
            "backlog": (len(self.lying), sum(doc.size for doc in self.lying)),
            "running": {doc.request for doc in self.lying if doc.is_running},
            "leaders": {fp: (doc.request, num) for fp, (doc, num) in self.leaders.items()},
            "answers": self.answers.bodies,
            "answer_bytes": self.answers.sizes,
            "figures": {
                **{name: num for name, num in self.figures.items() if num},
                "answer_bytes": sum(self.answers.sizes.values()),
            },
            "open": {name for name, job in self.jobs.items() if not job.is_sealed},
            "splits": {
                name: {doc.custom_id: doc.parts.name for doc in job.docs if doc.parts}
                for name, job in self.jobs.items()
            },
            "parked": {doc.job.name for doc in self.lying if doc.place == "parked"},
            "dead": [
                (one.doc.request, one.reason, one.n, one.doc.stream, one.has_result, one.history)
                for one in self.letters
            ],
            "unknown": [],
        }


def _parts_of(docs: Sequence[Doc]) -> list[Job]:
    """Return the jobs of parts that one may still steer."""
    return [doc.parts for doc in docs if doc.parts and not doc.parts.is_cancelled]


def _job(job: Job) -> dict[str, Any]:
    return {
        "submitted": len(job.docs),
        **{outcome: sum(doc.outcome == outcome for doc in job.docs) for outcome in OUTCOMES},
        "running": sum(doc.is_running for doc in job.docs),
        "is_sealed": job.is_sealed,
        "is_paused": job.is_paused,
        "is_cancelled": job.is_cancelled,
        "is_finished": job.is_finished,
        "ids": set() if job.is_of_parts else {doc.custom_id for doc in job.docs},
        "cancelled_ids": job.cancelled_ids,
        "history": job.history,
        "is_of_parts": job.is_of_parts,
        # every key of a job that is over ends with it, no other key of a job does
        "lifetimes": {job.is_over},
    }
