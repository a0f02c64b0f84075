"""How documents leave an engine worker: their results, and the thread that writes them.

Decides what a result says. Writing is repeated until Redis answers; the scripts fence each document
by ownership of its entry, so that repeating is safe. May import docmill, engine.base and the shared
modules in workers.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from docmill.errors import BrokerUnavailable
from docmill.keys import GROUP
from docmill.scripts import Scripts
from docmill.wire import Body, Failure, Outcome, pack_body
from engine.base import RowDone
from workers import log
from workers.leases import Lease, note_lost
from workers.lifecycle import vital_thread
from workers.retry import Again, GiveUp, Trouble
from workers.streams import Outage, insist, run_pipelined

#: Results written by one call, which Redis carries out in about 2 ms.
_CALL_SIZE = 64
#: After a call that came soon after the one before: results that come in quick succession share the
#: next, and a lone one never waits.
_PAUSE_S = 0.01
_MAX_MESSAGE_LEN = 1000
#: What the scripts answer when they did what they were told.
_DONE = frozenset({b"OK", b"BACK", b"LATER", b"DEAD", b"DROPPED"})


@dataclass(frozen=True, slots=True)
class Serving:
    """What answers: goes into every body, and says how documents end."""

    model: str
    model_version: str
    config_version: str

    def answer(self, lease: Lease, done: RowDone) -> "Ending":
        """Return the end of a document that the engine answered.

        Its body is written as `wire.Body.encode` does, but by hand, because checking one's own
        values costs more than all the rest.
        """
        prepared = lease.prepared
        waited_s = lease.began_at - lease.header.submitted_at - prepared.preprocess_s
        fields: dict[str, Any] = {
            "text": _encodable(done.text),
            "finish_reason": done.finish_reason,
            "usage": {
                "prompt_tokens": prepared.prompt_len,
                "cached_tokens": done.num_cached_tokens,
                "completion_tokens": done.num_tokens,
            },
            "timings": {
                "queue_s": max(0.0, waited_s),  # the clocks of two machines may disagree
                "preprocess_s": prepared.preprocess_s,
                "prefill_s": done.prefill_s,
                "decode_s": done.decode_s,
            },
            "model": self.model,
            "model_version": self.model_version,
            "config_version": self.config_version,
        }
        if prepared.truncation is not None:
            fields["truncation"] = prepared.truncation.model_dump()
        if prepared.warnings:
            fields["warnings"] = prepared.warnings
        return Ending(lease, "succeeded", pack_body(fields))

    def failure(self, lease: Lease, trouble: Trouble, verdict: Again | GiveUp) -> "Failing":
        """Return what becomes of a document that could not be answered."""
        told = verdict if isinstance(verdict, GiveUp) else trouble
        body = self.refusal(told.code, told.message)
        return Failing(lease, trouble, verdict, body.encode())

    def cancellation(self, lease: Lease) -> "Ending":
        """Return the end of a document that nobody wants any more; it has no result."""
        return Ending(lease, "cancelled", b"")

    def expiry(self, lease: Lease) -> "Ending":
        """Return the end of a document whose deadline passed before it was started."""
        message = "the deadline passed before the document was started"
        body = self.refusal("expired", message, "expired")
        return Ending(lease, "expired", body.encode())

    def refusal(self, code: str, message: str, outcome: Outcome = "failed") -> Body:
        """Return the body of a document that has no answer."""
        return Body(
            outcome=outcome,
            error=Failure(code=code, message=_encodable(message)[:_MAX_MESSAGE_LEN]),
            model=self.model,
            model_version=self.model_version,
            config_version=self.config_version,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """The end of a document that was leased: its outcome, and its body's bytes."""

    lease: Lease
    outcome: Outcome
    body: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Failing:
    """A failure of a leased document: what went wrong, what follows, and the result's bytes."""

    lease: Lease
    trouble: Trouble
    verdict: Again | GiveUp
    body: bytes


class Writer:
    """Writes endings and failures from a thread of its own.

    Args:
        client: A connection to Redis.
        prefix: The shard's prefix.
        consumer: The owner of the entries.
        cache_ttl_s: How long an answer serves later duplicates; 0: not at all.
        cache_max_bytes: What all stored answers may take.
        max_deliveries: Deliveries after which a failing document becomes a dead letter.
        release: Called with (stream, entry id) pairs whose endings are written, or are void.
    """

    def __init__(
        self,
        client: Any,
        prefix: str,
        consumer: str,
        *,
        cache_ttl_s: int,
        cache_max_bytes: int,
        max_deliveries: int,
        release: Callable[[Iterable[tuple[str, str]]], object],
    ) -> None:
        self._scripts = Scripts(client, prefix)
        self._client = client
        self._consumer = consumer
        self._cache = cache_ttl_s, cache_max_bytes
        self._max_deliveries = max_deliveries
        self._release = release
        self._queue: SimpleQueue[Ending | Failing | None] = SimpleQueue()
        self._abandoned = threading.Event()
        self._thread = vital_thread("writer", self._run)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def put(self, ending: Ending | Failing) -> None:
        """Queue what is to be written; from any thread, never blocks."""
        self._queue.put(ending)

    def close(self, timeout_s: float) -> None:
        """Write what is queued and stop; what Redis does not take in time is left unwritten."""
        self._queue.put(None)
        self._thread.join(max(0.0, timeout_s))
        self._abandoned.set()

    def _run(self) -> None:
        outage = Outage(self._abandoned.wait)
        is_open, written_at = True, 0.0
        while is_open:
            queued, is_open = self._next()
            try:
                self._write(queued, outage)
            except BrokerUnavailable as error:
                log.get().warning("results.abandoned", count=len(queued), problem=str(error))
                return
            is_hot = time.monotonic() - written_at < 2 * _PAUSE_S
            if is_open and is_hot and len(queued) < _CALL_SIZE:
                self._abandoned.wait(_PAUSE_S)
            written_at = time.monotonic()

    def _next(self) -> tuple[list[Ending | Failing], bool]:
        """Wait for something to write; False with it when it is the last."""
        queued: list[Ending | Failing] = []
        ending = self._queue.get()
        try:
            while ending is not None:
                queued.append(ending)
                if len(queued) >= _CALL_SIZE:
                    return queued, True
                ending = self._queue.get_nowait()
        except Empty:
            return queued, True
        return queued, False

    def _write(self, queued: Sequence[Ending | Failing], outage: Outage) -> None:
        endings = [one for one in queued if isinstance(one, Ending)]
        failures = [one for one in queued if isinstance(one, Failing)]
        rows = [value for ending in endings for value in _arguments(ending)]
        num_attempts = 0

        def send() -> list[Any]:
            nonlocal num_attempts
            num_attempts += 1
            verdicts = [] if not rows else self._scripts.call("complete", *self._shared(), *rows)
            return [*verdicts, *(self._fail(failures) if failures else ())]

        told: list[Ending | Failing] = [*endings, *failures]
        verdicts = insist(send, outage, self._abandoned.is_set)
        _note_refusals([one.lease for one in told], verdicts, is_repeated=num_attempts > 1)
        self._release((one.lease.stream, one.lease.entry_id) for one in told)

    def _shared(self) -> tuple[str, str, int, int]:
        return GROUP, self._consumer, *self._cache

    def _fail(self, failures: Sequence[Failing]) -> list[Any]:
        """Bury failed documents, or let them be delivered again, in one round trip."""

        def queue(pipe: Any) -> None:
            for one in failures:
                trouble, verdict = one.trouble, one.verdict
                owned = (one.lease.stream, GROUP, self._consumer, one.lease.entry_id)
                if isinstance(verdict, GiveUp):
                    told = (verdict.code, one.body, verdict.message, trouble.trace)
                    self._scripts.call("bury", *owned, *told, pipe=pipe)
                else:
                    counted = (1, self._max_deliveries, verdict.delay_s)
                    told = (trouble.code, one.body, trouble.message, trouble.trace)
                    self._scripts.call("redeliver", *owned, *counted, *told, "", "", pipe=pipe)

        return run_pipelined(self._client, queue)


def _arguments(ending: Ending) -> list[str | bytes]:
    named = ending.lease.named((b"i", b"j", b"b", b"f", b"h"))
    return [*named, ending.outcome, ending.body]


def _note_refusals(leases: Sequence[Lease], verdicts: Sequence[Any], *, is_repeated: bool) -> None:
    lost = []
    for lease, verdict in zip(leases, verdicts, strict=True):
        if verdict == b"LOST":
            lost.append(lease)
        elif verdict not in _DONE:
            problem = verdict.decode() if isinstance(verdict, bytes) else str(verdict)
            log.get().error("result.refused", problem=problem, **lease.ids)
    if not is_repeated:  # else it may be our own first attempt that took the entries
        note_lost(lost)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8."""
    return text.encode("utf-8", "replace").decode()
