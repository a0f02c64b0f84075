"""Carry documents into a job: chunk by chunk, as fast as Redis takes them, each exactly once.

Decides the size of a chunk, what is sent again, and which custom ids are duplicates; knows nothing
of where documents come from. Every step is idempotent by (job id, custom id), so whatever had no
reply is simply sent again. May import docmill.link and docmill.envelope.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack
from redis.exceptions import ResponseError

from docmill.connection import connection_error, is_out_of_memory
from docmill.envelope import Envelope, Envelopes, Terms
from docmill.errors import BrokerError, IntakeError, JobCancelled, JobNotFound, QueueFull
from docmill.intake.base import Document, Item
from docmill.link import Link, check_abandoned, pause, pause_s
from docmill.progress import counted
from docmill.question import check_same
from docmill.request import SpecBook
from docmill.scripts import ScriptName
from docmill.wire import SCHEMA_VERSION

#: A chunk is sent when it has so many documents, or bytes, or is so old.
CHUNK_DOCS = 64
CHUNK_BYTES = 1024 * 1024
CHUNK_AGE_S = 0.2

_log = logging.getLogger("docmill")


@dataclass(slots=True)
class Counts:
    """What a submission did: `seen` were in the job before, `refused` became error records."""

    accepted: int = 0
    seen: int = 0
    refused: int = 0

    @property
    def total(self) -> int:
        """All documents that have been dealt with."""
        return self.accepted + self.seen + self.refused


class FirstSeen:
    """Where each custom id of a submission stood first.

    Holds two integers an id instead of texts, about 100 bytes: a million ids fit into 100 MB. Two
    ids with the same hash are told apart by the job itself, which answers for the exact id.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._files: list[str] = []

    def note(self, item: Item, number: int) -> tuple[str, str | None]:
        """Return where an item stands, and where its custom id stood before, if it did."""
        code = self._code(item, number)
        first = self._first.setdefault(hash(item.custom_id), code)
        return self._text(code), None if first == code else self._text(first)

    def _code(self, item: Item, number: int) -> int:
        line = item.source.get("line") if item.source else None
        if not item.source or not isinstance(line, int):
            return number
        name = str(item.source.get("file"))
        if not self._files or self._files[-1] != name:
            self._files.append(name)
        return len(self._files) << 40 | line

    def _text(self, code: int) -> str:
        file, line = code >> 40, code & (1 << 40) - 1
        return f"{self._files[file - 1]}:{line}" if file else f"document {line}"


class Submission:
    """Sends one stream of documents into one job.

    Args:
        link: Where to.
        terms: What holds for all documents.
        specs: What is asked about them.
        on_open: Called once the job exists, before the first document is sent.
        on_progress: Called after each chunk.
    """

    def __init__(
        self,
        link: Link,
        terms: Terms,
        specs: SpecBook,
        on_open: Callable[[], None] | None = None,
        on_progress: Callable[[Counts], None] | None = None,
    ) -> None:
        self.counts = Counts()
        self._link = link
        self._terms = terms
        self._specs = specs
        self._on_open = on_open
        self._on_progress = on_progress
        self._envelopes = Envelopes(terms, specs)
        self._seen = FirstSeen()
        self._chunk: list[Envelope] = []
        self._chunk_bytes = 0
        self._chunk_started = 0.0
        self._has_waited = False

    def run(self, items: Iterable[Item]) -> Counts:
        """Send everything and seal the job.

        Raises:
            IntakeError: There are no documents; nothing was sent.
            JobRejected: The first document has no prompt, or the job was opened with another one or
                for another tenant; nothing was sent.
            JobCancelled: The job takes no more documents.
            JobNotFound: The job vanished from Redis while documents were sent.
            QueueFull: The backlog is full and the terms say not to wait.
            BrokerUnavailable: Redis was away for too long.
        """
        number = 0
        for number, item in enumerate(items, start=1):
            if number == 1:
                self._open(item)
            self._add(item, number)
        if number == 0:
            raise IntakeError("there are no documents to submit")
        self._flush()
        if not self._make_room_for("seal", self._terms.job_id):
            raise self._gone()
        return self.counts

    def _open(self, first: Item) -> None:
        if isinstance(first, Document) and not first.options:
            self._specs.spec()  # no prompt at all is the caller's mistake, not the document's
        terms, asked = self._terms, self._specs.default
        check_same(self._link, terms.job_id, asked, terms.tenant)
        meta = msgpack.packb(
            {
                "v": SCHEMA_VERSION,
                "name": terms.name,
                "tier": terms.tier,
                "spec": asked.digest if asked else "",
                "tenant": terms.tenant,
            }
        )
        spec = (asked.digest, asked.data) if asked else ()
        if (
            self._make_room_for("open", terms.job_id, terms.result_ttl_s, meta, *spec)
            == b"CANCELLED"
        ):
            raise JobCancelled(f"job {terms.job_id} was cancelled and takes no more documents")
        if self._on_open:
            self._on_open()

    def _make_room_for(self, script: ScriptName, *args: Any) -> Any:
        """Call a script, again for as long as Redis has no memory for what it writes."""

        def call() -> Any:
            return _or_refusal(lambda: self._link.scripts.call(script, *args))

        attempt = 0
        while is_out_of_memory(reply := self._link.run(call)):
            self._wait_for_room(attempt, lacks_memory=True)
            attempt += 1
        return reply

    def _gone(self) -> JobNotFound:
        return JobNotFound(
            f"job {self._terms.job_id} has ended meanwhile or is gone from Redis; its documents "
            "must be submitted again"
        )

    def _add(self, item: Item, number: int) -> None:
        """Put an item into the chunk, and send the chunk when it is due."""
        position, earlier = self._seen.note(item, number)
        if earlier:
            # rare: with all before it settled, the reply tells a duplicate from a hash collision
            self._flush()
        envelope = self._envelopes.make(item, position, earlier)
        if not self._chunk:
            self._chunk_started = time.monotonic()
        self._chunk.append(envelope)
        self._chunk_bytes += envelope.num_bytes
        is_full = len(self._chunk) >= CHUNK_DOCS or self._chunk_bytes >= CHUNK_BYTES
        if is_full or time.monotonic() - self._chunk_started > CHUNK_AGE_S:
            self._flush()

    def _flush(self) -> None:
        """Send the chunk until everything in it has been accepted, seen or refused."""
        attempt = 0
        check_abandoned()
        while self._chunk:
            waiting: list[Envelope] = []
            again: list[Envelope] = []
            lacks_memory = False
            for envelope, reply in zip(self._chunk, self._exchange(), strict=True):
                if reply == b"FULL" or is_out_of_memory(reply):
                    waiting.append(envelope)
                    lacks_memory = lacks_memory or reply != b"FULL"
                else:
                    again += self._settle(envelope, reply)
            self._chunk = waiting + again
            if waiting:
                self._wait_for_room(attempt, lacks_memory=lacks_memory)
                attempt += 1
        self._chunk_bytes = 0
        if self._on_progress:
            self._on_progress(self.counts)

    def _exchange(self) -> list[Any]:
        """Send the chunk in order and return a verdict for each envelope.

        Neighbouring documents share one call: a call of its own costs Redis more than the document.
        """
        runs = _runs(self._chunk)

        def send() -> list[Any]:
            if len(runs) == 1:
                # without a pipeline, which would first ask whether Redis has the script
                return [_or_refusal(lambda: self._call_for(runs[0]))]
            pipe = self._link.client.pipeline(transaction=False)
            for run in runs:
                self._call_for(run, pipe)
            replies: list[Any] = pipe.execute(raise_on_error=False)
            return replies

        replies = self._link.run(send)
        return list(chain.from_iterable(map(_verdicts, runs, replies)))

    def _call_for(self, run: list[Envelope], pipe: Any = None) -> Any:
        script, job_id = run[0].script, self._terms.job_id
        if script == "reject":
            return self._link.scripts.call(script, job_id, *run[0].args, pipe=pipe)
        args = chain.from_iterable(envelope.args for envelope in run)
        return self._link.scripts.call(script, job_id, self._terms.tier, *args, pipe=pipe)

    def _settle(self, envelope: Envelope, reply: Any) -> list[Envelope]:
        """Take note of a final reply; a duplicate returns the error record to send for it."""
        if reply == b"OK":
            if envelope.script == "submit":
                self.counts.accepted += 1
            else:
                self.counts.refused += 1
        elif reply == b"SEEN" and envelope.earlier:
            return [self._envelopes.duplicate(envelope)]
        elif reply == b"SEEN":
            self.counts.seen += 1
        elif reply == b"CANCELLED":
            raise JobCancelled(f"job {self._terms.job_id} was cancelled while it was filled")
        elif reply == b"CLOSED":
            raise self._gone()
        else:
            raise self._refused(reply)
        return []

    def _refused(self, reply: Any) -> BrokerError:
        if isinstance(reply, Exception):
            return connection_error(reply, self._link.url)
        return BrokerError(f"Redis refused a document: {reply!r:.200}")

    def _wait_for_room(self, attempt: int, *, lacks_memory: bool) -> None:
        names = ("docs", "bytes", "max_docs", "max_bytes")
        values = self._link.run(lambda: self._link.client.hmget(self._link.keys.backlog, names))
        depth = {name: int(value or 0) for name, value in zip(names, values, strict=True)}
        message = (
            f"{'Redis is out of memory (maxmemory)' if lacks_memory else 'the backlog is full'}: "
            f"{counted(depth['docs'], 'document')}, {depth['bytes']:,} bytes accepted and not yet "
            "answered"
        )
        if lacks_memory:
            message += "; raise it, or wait for results to expire"
        if not self._terms.waits_when_full:
            raise QueueFull(message, **depth)
        if not self._has_waited:
            _log.warning("%s; waiting for room", message)
            self._has_waited = True
        pause(pause_s(attempt))


def _or_refusal(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error by which Redis refused it for want of memory."""
    try:
        return call()
    except ResponseError as error:
        if is_out_of_memory(error):
            return error
        raise


def _runs(chunk: list[Envelope]) -> list[list[Envelope]]:
    """Cut a chunk where documents and error records meet; an error record stands alone."""
    runs: list[list[Envelope]] = []
    for envelope in chunk:
        if runs and envelope.script == runs[-1][0].script == "submit":
            runs[-1].append(envelope)
        else:
            runs.append([envelope])
    return runs


def _verdicts(run: list[Envelope], reply: Any) -> list[Any]:
    """Return a verdict for each envelope of a run; an error answers for all of them."""
    return reply if isinstance(reply, list) else [reply] * len(run)
