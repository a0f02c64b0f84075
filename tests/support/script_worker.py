"""A worker that takes no step of its own: each of its methods calls one script."""

from typing import Any

from docmill.keys import GROUP, parts_job
from docmill.wire import Body, Failure, Header
from tests.support.ready_documents import SPEC, Documents
from workers.streams import ensure_groups

#: Deliveries that a document gets.
LIMIT = 2
FAILED = Body(outcome="failed", error=Failure(code="delivery_limit", message="given up"))

#: A delivered entry: stream, id, fields.
Taken = tuple[str, str, dict[bytes, bytes]]


class Worker:
    """Works on entries with single calls of the scripts."""

    def __init__(self, documents: Documents, name: str = "w1") -> None:
        self.documents = documents
        self.name = name

    def take(self, count: int = 100, stream: str | None = None) -> list[Taken]:
        """Read ready entries."""
        stream = stream or self.documents.ready()
        ensure_groups(self.documents.client, [stream])
        replies = self.documents.client.xreadgroup(GROUP, self.name, {stream: ">"}, count=count)
        return [
            (stream, entry_id.decode(), fields)
            for entry_id, fields in (replies[0][1] if replies else [])
        ]

    def split(self, taken: Taken, *texts: str) -> bytes:
        """Call split.lua."""
        stream, entry, fields = taken
        whole, rounds = Header.decode(fields[b"h"]), int(fields.get(b"l", 0))
        job_id, told = parts_job(whole.job_id, whole.request_id, rounds), list[str | bytes]()
        for number, text in enumerate(texts, start=1):
            request_id = f"{whole.request_id}.{rounds}.{number}"
            own = {"request_id": request_id, "job_id": job_id, "custom_id": f"{number}"}
            told += [request_id, whole.model_copy(update=own).encode(), text]
        owned = (stream, GROUP, self.name, entry)
        of_parts = (job_id, fields[b"h"], SPEC.digest(), SPEC.encode())
        verdict: bytes = self.documents.scripts.call("split", *owned, *of_parts, *told)
        return verdict

    def begin(self, *taken: Taken) -> list[bytes]:
        """Call begin.lua."""
        told = [value for one in taken for value in _named(one, b"ijbf")]
        verdicts: list[bytes] = self.documents.scripts.call("begin", GROUP, self.name, *told)
        return verdicts

    def complete(
        self,
        *taken: Taken,
        outcome: str = "succeeded",
        ttl_s: int = 60,
        max_bytes: int = 2**30,
        body: bytes = b"",
    ) -> list[bytes]:
        """Call complete.lua with the same body for all."""
        body = body or Body(outcome=outcome, text="answer").encode()
        told = [value for one in taken for value in (*_named(one, b"ijbfh"), outcome, body)]
        verdicts: list[bytes] = self.documents.scripts.call(
            "complete", GROUP, self.name, ttl_s, max_bytes, *told
        )
        return verdicts

    def redeliver(
        self,
        taken: Taken,
        *,
        heartbeat: str = "",
        counts: int = 1,
        limit: int = LIMIT,
        delay_s: float = 0,
        token: str = "",
    ) -> bytes:
        """Call redeliver.lua."""
        owned = (taken[0], GROUP, self.name, taken[1])
        letter = ("delivery_limit", FAILED.encode(), "given up", "abc")
        verdict: bytes = self.documents.scripts.call(
            "redeliver", *owned, counts, limit, delay_s, *letter, heartbeat, token
        )
        return verdict

    def bury(self, taken: Taken, trace: str = "") -> bytes:
        """Call bury.lua."""
        owned = (taken[0], GROUP, self.name, taken[1])
        verdict: bytes = self.documents.scripts.call(
            "bury", *owned, "decode_error", FAILED.encode(), "unreadable", trace
        )
        return verdict

    def work_off(self, **prepared: Any) -> None:
        """Answer whatever can be answered; followers without an answer go round once more."""
        for _ in range(3):
            self.documents.prepare(**prepared)
            taken = self.take()
            verdicts = self.begin(*taken)
            both = zip(taken, verdicts, strict=True)
            self.complete(*(one for one, verdict in both if verdict == b"RUN"))


def _named(taken: Taken, names: bytes) -> list[str | bytes]:
    stream, entry_id, fields = taken
    return [stream, entry_id, *(fields[bytes([name])] for name in names)]
