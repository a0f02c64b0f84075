"""A worker without a model: answers every document in capital letters, in a thread.

Speaks the real scripts over the real streams, so that the client can be tested where neither the
workers' packages nor torch are installed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from docmill.keys import GROUP, TIERS, Keys
from docmill.scripts import Scripts
from docmill.wire import Body, Failure, Header, Spec, Usage

READY = ("canned", "batch", 0)
CONSUMER = "canned-1"


class CannedWorker:
    """Takes documents through intake, ready and completion, one small batch at a time."""

    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)
        self._intakes = [keys.intake(tier) for tier in TIERS]
        self._ready = keys.ready(*READY)
        self.specs: dict[str, Spec] = {}

    def step(self, count: int = 100) -> int:
        """Take up to `count` documents of each tier all the way; returns how many were finished."""
        self.prepare(count)
        return self.complete(count)

    def prepare(self, count: int = 100) -> None:
        """Move documents from intake to the ready stream; empty ones are refused."""
        for stream, entry, fields in self._read(self._intakes, count):
            header = Header.decode(fields[b"h"])
            spec = self._client.hget(self._keys.specs(header.job_id), header.spec)
            self.specs[header.custom_id] = Spec.decode(spec)
            verdict: tuple[Any, ...] = ("ready", self._ready, fields[b"d"], "", 7)
            if not fields[b"d"]:
                error = Failure(code="empty_document", message="the document is empty")
                verdict = ("settle", "failed", Body(outcome="failed", error=error).encode(), "", "")
            told = [fields[name] for name in (b"i", b"j", b"b", b"h")]
            self._scripts.call("prepare", GROUP, CONSUMER, 0, stream, entry, *told, *verdict)

    def begin(self, count: int = 100) -> list[tuple[str, bytes, dict[bytes, bytes]]]:
        """Mark ready documents as running and return them."""
        taken = self._read([self._ready], count)
        told: list[Any] = []
        for stream, entry, fields in taken:
            told += [stream, entry, *(fields[name] for name in (b"i", b"j", b"b", b"f"))]
        verdicts = self._scripts.call("begin", GROUP, CONSUMER, *told) if told else []
        return [one for one, verdict in zip(taken, verdicts, strict=True) if verdict == b"RUN"]

    def complete(self, count: int = 100) -> int:
        """Answer what is ready."""
        running = self.begin(count)
        for one in running:
            self.answer(*one)
        return len(running)

    def answer(self, stream: str, entry: bytes, fields: dict[bytes, bytes]) -> None:
        """Answer one running document in capital letters."""
        text = fields[b"p"].decode().upper()
        usage = Usage(prompt_tokens=7, completion_tokens=len(text))
        body = Body(text=text, finish_reason="stop", usage=usage, model="canned").encode()
        told = [fields[name] for name in (b"i", b"j", b"b", b"f", b"h")]
        told += [b"succeeded", body]
        self._scripts.call("complete", GROUP, CONSUMER, 0, 0, stream, entry, *told)

    def fail(
        self,
        stream: str,
        entry: bytes,
        fields: dict[bytes, bytes],
        code: str = "non_finite_logits",
        message: str = "it cannot be answered",
    ) -> None:
        """Give up one running document: a failed result, and a dead letter."""
        error = Failure(code=code, message=message)
        body = Body(outcome="failed", error=error, model="canned").encode()
        owned = (stream, GROUP, CONSUMER, entry)
        self._scripts.call("bury", *owned, code, body, error.message, "0123456789ab")

    def _read(self, streams: list[str], count: int) -> list[tuple[str, bytes, dict[bytes, bytes]]]:
        for stream in streams:
            try:
                self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)
            except redis.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        wanted: dict[Any, Any] = dict.fromkeys(streams, ">")
        replies: Any = self._client.xreadgroup(GROUP, CONSUMER, wanted, count=count)
        return [
            (stream.decode(), entry, fields)
            for stream, entries in replies
            for entry, fields in entries
        ]


@contextmanager
def answering(worker: CannedWorker, pause_s: float = 0.005) -> Iterator[None]:
    """Let a worker answer in a thread until the block ends; Redis may be away meanwhile."""
    stopping = threading.Event()

    def run(step: Callable[[], int]) -> None:
        while not stopping.wait(pause_s):
            try:
                step()
            except (redis.ConnectionError, redis.TimeoutError):
                continue

    thread = threading.Thread(target=run, args=(worker.step,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
