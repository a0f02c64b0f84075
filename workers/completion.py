"""How documents end: the bodies of their results, and the thread that writes them.

Decides what a result says. Writing is repeated until Redis answers; the script fences each result
by ownership of the entry, so that repeating is safe. May import docmill, engine.base and the shared
modules in workers.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import msgpack

from docmill.errors import BrokerUnavailable
from docmill.keys import GROUP
from docmill.scripts import Scripts
from docmill.wire import SCHEMA_VERSION, Body, Failure, Outcome
from engine.base import RowDone
from workers import log
from workers.leases import Lease
from workers.lifecycle import vital_thread
from workers.streams import Outage, insist

#: Results written by one call, which Redis carries out in about 2 ms.
_CALL_SIZE = 64
#: Between two calls: results that come in quick succession share one, and the first waits for none.
_PAUSE_S = 0.01
_MAX_MESSAGE_LEN = 1000


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
            "v": SCHEMA_VERSION,
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
        return Ending(lease, "succeeded", msgpack.packb(fields))

    def failure(self, lease: Lease, code: str, message: str) -> "Ending":
        """Return the end of a document that could not be answered."""
        return Ending(lease, "failed", self.refusal(code, message).encode())

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


class Writer:
    """Writes endings from a thread of its own.

    Args:
        client: A connection to Redis.
        prefix: The shard's prefix.
        consumer: The owner of the entries.
        cache_ttl_s: How long an answer serves later duplicates.
        release: Called with (stream, entry id) pairs whose endings are written, or are void.
    """

    def __init__(
        self,
        client: Any,
        prefix: str,
        consumer: str,
        *,
        cache_ttl_s: int,
        release: Callable[[Iterable[tuple[str, str]]], object],
    ) -> None:
        self._scripts = Scripts(client, prefix)
        self._shared_arguments = (GROUP, consumer, cache_ttl_s)
        self._release = release
        self._endings: SimpleQueue[Ending | None] = SimpleQueue()
        self._abandoned = threading.Event()
        self._thread = vital_thread("writer", self._run)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def put(self, ending: Ending) -> None:
        """Queue an ending; from any thread, never blocks."""
        self._endings.put(ending)

    def close(self, timeout_s: float) -> None:
        """Write what is queued and stop; what Redis does not take in time is left unwritten."""
        self._endings.put(None)
        self._thread.join(max(0.0, timeout_s))
        self._abandoned.set()

    def _run(self) -> None:
        outage = Outage(self._abandoned.wait)
        is_open = True
        while is_open:
            endings, is_open = self._next()
            try:
                if endings:
                    self._write(endings, outage)
            except BrokerUnavailable as error:
                log.get().warning("results.abandoned", count=len(endings), problem=str(error))
                return
            if is_open and len(endings) < _CALL_SIZE:
                self._abandoned.wait(_PAUSE_S)

    def _next(self) -> tuple[list[Ending], bool]:
        """Wait for endings; False with them when they are the last."""
        endings: list[Ending] = []
        ending = self._endings.get()
        try:
            while ending is not None:
                endings.append(ending)
                if len(endings) >= _CALL_SIZE:
                    return endings, True
                ending = self._endings.get_nowait()
        except Empty:
            return endings, True
        return endings, False

    def _write(self, endings: Sequence[Ending], outage: Outage) -> None:
        rows = [value for ending in endings for value in _arguments(ending)]
        num_attempts = 0

        def send() -> list[bytes]:
            nonlocal num_attempts
            num_attempts += 1
            verdicts: list[bytes] = self._scripts.call("complete", *self._shared_arguments, *rows)
            return verdicts

        verdicts = insist(send, outage, self._abandoned.is_set)
        for ending, verdict in zip(endings, verdicts, strict=True):
            if verdict != b"OK":
                _note_refusal(ending.lease, verdict, is_repeated=num_attempts > 1)
        self._release((ending.lease.stream, ending.lease.entry_id) for ending in endings)


def _arguments(ending: Ending) -> list[str | bytes]:
    named = ending.lease.named((b"i", b"j", b"b", b"f", b"h"))
    return [*named, ending.outcome, ending.body]


def _note_refusal(lease: Lease, verdict: bytes, *, is_repeated: bool) -> None:
    if verdict != b"LOST":
        log.get().error("result.refused", problem=verdict.decode(), **lease.ids)
    elif not is_repeated:  # else it may be our own first attempt that took the entry
        log.get().warning("lease.lost", **lease.ids)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8."""
    return text.encode("utf-8", "replace").decode()
