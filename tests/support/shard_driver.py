"""Calls every script on a real shard and on its model, and compares what they say.

Decides nothing about what to call when: see tests/integration/test_shard_model.py.
"""

import uuid
from collections.abc import Sequence
from typing import Any

import msgpack

from docmill.keys import GROUP, TIERS, Keys, parts_job
from docmill.scripts import Scripts
from docmill.wire import Header
from tests.support.shard_model import Shard
from tests.support.shard_records import Doc, Job, Letter, Ticket
from tests.support.shard_state import check_laws, observe

HOUR_S = 3600
WORKERS = ("w1", "w2", "w3")
INTAKES = tuple(f"intake:{tier}" for tier in TIERS)
READIES = tuple(f"ready:fake:{tier}:0" for tier in TIERS)
_SPEC = ("digest", "spec")


class Driver:
    """One shard of its own, and its model."""

    def __init__(self, client: Any, max_docs: int) -> None:
        self.client = client
        self.keys = Keys(f"m{uuid.uuid4().hex[:12]}")
        self.scripts = Scripts(client, self.keys.prefix)
        self.model = Shard(max_docs)
        self.tickets: list[Ticket] = []
        self.letter_ids: dict[Letter, str] = {}
        self.alive: set[str] = set()
        self.leader, self.token = "", 0
        self._num_made = 0
        client.hset(self.keys.backlog, "max_docs", max_docs)
        for name in (*INTAKES, *READIES):
            client.xgroup_create(self.stream(name), GROUP, id="0", mkstream=True)

    def stream(self, name: str) -> str:
        """Return a stream's key."""
        return f"{self.keys.prefix}:{name}"

    def lying(self, place: str) -> list[Doc]:
        """Return the documents that lie there."""
        return [doc for doc in self.model.lying if doc.place == place]

    def held(self, kind: str = "", consumer: str = "") -> list[Ticket]:
        """Return the deliveries that count, from streams whose names begin so."""
        return [
            one
            for one in self.tickets
            if one.stream.startswith(kind)
            and consumer in ("", one.consumer)
            and one.is_held_by(one.consumer)
        ]

    def check(self) -> None:
        """Assert that Redis holds what the model says, and that it adds up."""
        seen = observe(self.client, self.keys)
        check_laws(seen)

        assert seen == self.model.expected()

        ids = [entry.decode() for entry, _ in self.client.xrange(self.keys.dead)]
        self.letter_ids.update(zip(self.model.letters, ids, strict=True))

    def agrees(self) -> bool:
        """Whether a check would pass."""
        return observe(self.client, self.keys) == self.model.expected()

    def clean_up(self) -> None:
        """Remove the shard."""
        self.client.delete(*self.client.keys(f"{self.keys.prefix}:*"))

    # clients

    def open(self, job_id: str) -> None:
        """Open a job."""
        said = self.scripts.call("open", job_id, HOUR_S, b"", *_SPEC)

        assert said == self.model.open(job_id)

    def submit(self, job_id: str, tier: str, ids: Sequence[str], has_deadline: bool) -> None:
        """Submit documents by one call."""
        docs = [self._make(job_id, custom_id, tier, has_deadline) for custom_id in ids]
        told: list[str | bytes] = []
        for doc in docs:
            told += [doc.custom_id, doc.request, doc.header, b"x" * doc.size, *_SPEC]
        said = self.scripts.call("submit", job_id, tier, *told)

        assert said == [self.model.submit(job_id, doc) for doc in docs]

    def reject(self, job_id: str) -> None:
        """Record a document that never enters."""
        doc, body = self._make(job_id, "a", "batch", False), self._body("failed")
        said = self.scripts.call("reject", job_id, "a", doc.header, body)

        assert said == self.model.reject(job_id, doc, body)

    def _make(self, job_id: str, custom_id: str, tier: str, has_deadline: bool) -> Doc:
        self._num_made += 1
        request = f"{job_id}.{custom_id}.{self._num_made}"
        header = Header(
            request_id=request,
            job_id=job_id,
            custom_id=custom_id,
            spec="digest",
            tier=tier,
            submitted_at=0.0,
            deadline_at=1.0 if has_deadline else None,
        ).encode()
        job = self.model.jobs.get(job_id, Job(job_id))
        return Doc(
            request, custom_id, job, header, self._num_made % 50, f"intake:{tier}", has_deadline
        )

    def _body(self, outcome: str = "succeeded") -> bytes:
        # unlike any other; every other one is long enough to be stored once
        self._num_made += 1
        text = f"{self._num_made} ".ljust(8 + self._num_made % 2 * 1100)
        if outcome == "succeeded":
            return text.encode()
        code = "expired" if outcome == "expired" else "no_use"
        error = {"code": code, "message": text}
        return bytes(msgpack.packb({"v": 2, "outcome": outcome, "error": error}))

    # the jobs' fates

    def seal(self, job_id: str) -> None:
        """Say that no more documents come."""
        assert self.scripts.call("seal", job_id) == self.model.seal(job_id)

    def abandon(self, job_id: str) -> None:
        """Seal the job because its producer has long been silent."""
        job = self.model.jobs.get(job_id)
        is_open = job is not None and not job.is_sealed
        self.client.zadd(self.keys.open_jobs, {job_id: 0}, xx=True)

        assert self.scripts.call("abandoned", HOUR_S, 10) == int(is_open)

        if is_open:
            self.model.seal(job_id)

    def pause(self, job_id: str) -> None:
        """Let the job rest."""
        assert self.scripts.call("pause", job_id, 1) == self.model.pause(job_id, True)

    def resume(self, job_id: str) -> None:
        """Let it go on."""
        assert self.scripts.call("pause", job_id, 0) == self.model.pause(job_id, False)

    def cancel(self, job_id: str, ids: Sequence[str] = ()) -> None:
        """Cancel the job, or some of its documents."""
        assert self.scripts.call("cancel", job_id, *ids) == self.model.cancel(job_id, ids)

    def expire(self, job_id: str) -> None:
        """Let a finished job's keys expire, if their time runs."""
        key = self.keys.job(job_id)
        names = [key.encode(), *self.client.keys(f"{key}:*")]
        if ending := [name for name in names if self.client.ttl(name) > 0]:
            self.client.delete(*ending)
            self.model.expire(job_id)

    # workers

    def deliver(self, consumer: str, name: str, count: int) -> None:
        """Let a consumer read a stream."""
        replies = self.client.xreadgroup(GROUP, consumer, {self.stream(name): ">"}, count=count)
        lying = {doc.request: doc for doc in self.lying(name)}
        taken = replies[0][1] if replies else []

        assert len(taken) == min(count, sum(not doc.holder for doc in lying.values()))

        for entry, fields in taken:
            doc = lying[fields[b"i"].decode()]
            doc.holder, doc.entry = consumer, entry.decode()
            self.tickets.append(Ticket(consumer, name, doc.entry, doc))

    def _told(self, ticket: Ticket, *fields: str | bytes) -> list[str | bytes | int]:
        doc = ticket.doc
        named = (self.stream(ticket.stream), ticket.entry, doc.request, doc.job.name, doc.size)
        return [*named, *fields]

    def prepare(self, consumer: str, tickets: Sequence[Ticket], fps: Sequence[str | None]) -> None:
        """End intake entries: as ready with a fingerprint or '', or as refused."""
        told: list[str | bytes | int] = []
        named = []
        for ticket, fp in zip(tickets, fps, strict=False):
            ready, body = ticket.stream.replace("intake", "ready:fake") + ":0", self._body("failed")
            made = ("ready", self.stream(ready), "p", fp, 1)
            verdict = ("settle", "failed", body, "", "") if fp is None else made
            told += self._told(ticket, ticket.doc.header, *verdict)
            named.append((ticket, ready, fp, body))
        said = self.scripts.call("prepare", GROUP, consumer, 0, *told)

        assert said == list(self.model.prepare(consumer, named))

    def split(self, consumer: str, ticket: Ticket, num_parts: int) -> None:
        """Replace a document by its parts."""
        doc, told, parts = ticket.doc, list[str | bytes](), []
        job_id = parts_job(doc.job.name, doc.request, doc.rounds)
        for number in range(1, num_parts + 1):
            request, header = f"{doc.request}.{doc.rounds}.{number}", Header.decode(doc.header)
            own = {"request_id": request, "job_id": job_id, "custom_id": str(number)}
            packed = header.model_copy(update=own).encode()
            parts.append(
                Doc(request, f"{number}", Job(job_id), packed, 3, ticket.stream, doc.has_deadline)
            )
            told += [request, packed, b"xxx"]
        owned = (self.stream(ticket.stream), GROUP, consumer, ticket.entry)
        said = self.scripts.call("split", *owned, job_id, doc.header, *_SPEC, *told)

        assert said == self.model.split(consumer, ticket, parts)

    def begin(self, consumer: str, tickets: Sequence[Ticket]) -> None:
        """Start documents."""
        told = [value for one in tickets for value in self._told(one, one.doc.fp)]
        said = self.scripts.call("begin", GROUP, consumer, *told)

        assert said == list(self.model.begin(consumer, tickets))

    def complete(
        self, consumer: str, tickets: Sequence[Ticket], ends: Sequence[str], max_bytes: int = 0
    ) -> None:
        """End documents."""
        told: list[str | bytes | int] = []
        named = []
        for ticket, end in zip(tickets, ends, strict=False):
            body = self._body(end)
            told += self._told(ticket, ticket.doc.fp, ticket.doc.header, end, body)
            named.append((ticket, end, body))
        ttl_s = HOUR_S if max_bytes else 0
        said = self.scripts.call("complete", GROUP, consumer, ttl_s, max_bytes, *told)

        assert said == list(self.model.complete(consumer, named, max_bytes))

    def bury(self, consumer: str, ticket: Ticket) -> None:
        """Give a document up."""
        body = self._body("failed")
        owned = (self.stream(ticket.stream), GROUP, consumer, ticket.entry)
        said = self.scripts.call("bury", *owned, "decode_error", body, "unreadable", "")

        assert said == self.model.bury(consumer, ticket, "decode_error", body)

    def hand_back(
        self, consumer: str, ticket: Ticket, counted: bool = False, is_later: bool = False
    ) -> None:
        """Hand back what one holds, for now or for later."""
        said, limit, body = self._redeliver(consumer, ticket, counted, is_later * HOUR_S, "", "")

        assert said == self.model.redeliver(consumer, ticket, counted, is_later, limit, body)

    def _redeliver(
        self, owner: str, ticket: Ticket, counted: bool, delay_s: int, *reaper: str
    ) -> tuple[bytes, int, bytes]:
        body, limit = self._body("failed"), 1 + self._num_made % 2  # one delivery, or two
        owned = (self.stream(ticket.stream), GROUP, owner, ticket.entry)
        how = (int(counted), limit, delay_s, "delivery_limit", body, "given up", "abc")
        return self.scripts.call("redeliver", *owned, *how, *reaper), limit, body

    # reapers, and the moments they act on

    def live(self, consumer: str) -> None:
        """Give a sign of life."""
        self.scripts.call("beat", consumer, HOUR_S * 1000, "{}")
        self.alive.add(consumer)

    def die(self, consumer: str) -> None:
        """Let the last sign of life lapse."""
        self.client.delete(self.keys.heartbeat(consumer))
        self.alive.discard(consumer)

    def lead(self, holder: str) -> None:
        """Ask to be the reaper, or to stay it."""
        is_free = self.leader in ("", holder)
        if not self.leader:
            self.leader, self.token = holder, self.token + 1

        assert self.scripts.call("lead", holder, HOUR_S * 1000) == (self.token if is_free else 0)

    def resign(self, holder: str) -> None:
        """Let another lead."""
        assert self.scripts.call("resign", holder) == int(holder == self.leader != "")

        self.leader = "" if holder == self.leader else self.leader

    def lapse(self, holder: str) -> None:
        """Let the reaper be too slow to stay it."""
        if holder == self.leader:
            self.client.delete(self.keys.reaper)
            self.leader = ""

    def reap(self, owner: str, ticket: Ticket, is_old: bool) -> None:
        """Hand back what somebody else holds, as the reaper, or one that was it before, does."""
        reaper = (self.keys.heartbeat(owner), str(self.token - is_old))
        said, limit, body = self._redeliver(owner, ticket, True, 0, *reaper)
        if owner in self.alive or is_old or not self.leader:
            assert said == b"LOST"
        else:
            assert said == self.model.redeliver(owner, ticket, True, False, limit, body)

    def forget(self, consumer: str, name: str) -> None:
        """Take a consumer off a stream's group."""
        heartbeat = self.keys.heartbeat(consumer)
        said = self.scripts.call("forget", self.stream(name), GROUP, consumer, heartbeat)
        is_kept = consumer in self.alive or any(one.holder == consumer for one in self.lying(name))

        assert said == (b"KEPT" if is_kept else b"OK")

    def come_due(self, docs: Sequence[Doc], count: int) -> None:
        """Let the moments come that these wait for, and bring back so many."""
        self.client.zadd(self.keys.later, {doc.request: at for at, doc in enumerate(docs)})

        assert self.scripts.call("due", count) == self.model.due(docs[:count])

        for doc in docs[count:]:
            self.client.zadd(self.keys.later, {doc.request: 4e9})

    def unpark(self, count: int) -> None:
        """Bring back what was parked; of which job first is left open."""
        free = [one for one in self.lying("parked") if one.job.is_gone or not one.job.is_paused]

        assert self.scripts.call("unpark", count) == min(count, len(free))

        lying = observe(self.client, self.keys)["lying"]
        back = [doc for doc in free if not lying[doc.request][0].place.endswith(":parked")]

        assert len(back) == min(count, len(free))

        for doc in back:
            doc.lie(doc.stream)

    def pass_deadlines(self, doc: Doc) -> None:
        """End all whose deadline passed while they lay where this one does, or comes back to."""
        name = doc.lying.place if doc.place == "parked" else doc.stream
        body = self._body("expired")
        args = (self.stream(name), GROUP, "0", 100, body)
        said = self.scripts.call("expire", *args)
        num_held = sum(one.place == name and one.holder != "" for one in self.model.lying)

        num_ended, num_seen = self.model.pass_deadlines(name, body)

        assert said == [num_ended, b"", num_seen + num_held]

    def forget_answer(self, fp: str) -> None:
        """Let an answer's lifetime end."""
        self.client.delete(self.keys.cached_result(fp))
        self.model.answers.bodies.pop(fp, None)

    def trim(self, aged: Sequence[str], max_bytes: int) -> None:
        """Let nobody use some answers for long, and forget them and what is too much."""
        if aged:
            self.client.zadd(self.keys.answers, dict.fromkeys(aged, 0))
        said = self.scripts.call("trim_answers", HOUR_S, max_bytes, 100)

        assert said == self.model.trim(aged, max_bytes)

    # operators

    def retry(self, letters: Sequence[Letter]) -> None:
        """Retry dead letters."""
        said = self.scripts.call("retry", *(self.letter_ids[letter] for letter in letters))

        assert said == [self.model.retry(letter) for letter in letters]

    def drop(self, letters: Sequence[Letter]) -> None:
        """Drop dead letters."""
        there = set(self.model.letters) & set(letters)
        ids = (self.letter_ids[letter] for letter in letters)

        assert self.scripts.call("drop_dead", *ids) == len(there)

        for letter in there:
            self.model.letters.remove(letter)
