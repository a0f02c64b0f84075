"""An engine worker inside the test's process, with engines that do what a test needs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from docmill.keys import Keys
from docmill.wire import Body
from engine.base import Engine, Event, Refill, Row, Step
from engine.fake import FakeEngine, answer
from tests.support.ready_documents import Documents
from tests.support.wait import wait_until
from workers.engine_worker import EngineWorker
from workers.lifecycle import Presence, Progress, consumer_name
from workers.models import FAKE
from workers.process import Process
from workers.settings import Settings
from workers.streams import connect

#: A prompt on which `MisbehavingEngine` misbehaves.
POISON = [7, 7, 7]


def make_process(role: str, redis_url: str, keys: Keys, **settings: Any) -> Process:
    """Return what a worker of this role is given, its heartbeat not yet started."""
    _log_plainly()
    chosen: dict[str, Any] = {"engine": "fake", "heartbeat_ttl_s": 1.0, "max_wait_s": 0.01}
    configured = Settings(redis_url=redis_url, namespace=keys.namespace, **chosen | settings)
    client, consumer, progress = connect(configured, role), consumer_name(), Progress()
    presence = Presence(
        client, keys, consumer, role=role, ttl_s=configured.heartbeat_ttl_s, progress=progress
    )
    stop = threading.Event()
    return Process(configured, client, keys, consumer, stop, progress, presence)


def _log_plainly() -> None:
    """Structlog's default shows the locals of every frame of a traceback, which takes seconds."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    )


@contextmanager
def serving(engine: Engine, redis_url: str, keys: Keys, **settings: Any) -> Iterator[Process]:
    """Serve in a thread until the block ends; the worker must then stop by itself."""
    process = make_process("engine", redis_url, keys, **settings)
    process.presence.enter(process.stop)
    worker = threading.Thread(target=EngineWorker(process, FAKE, engine).serve, daemon=True)
    worker.start()
    try:
        yield process
    finally:
        process.stop.set()
        worker.join(15)
        process.presence.leave()
        process.client.close()
        assert not worker.is_alive()


class MisbehavingEngine(FakeEngine):
    """Does something else whenever a poisoned row is in the batch."""

    def __init__(self, misbehave: Callable[[], None]) -> None:
        super().__init__()
        self._misbehave = misbehave

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer, unless a row is poisoned."""
        if any(list(row.prompt) == POISON for row in rows):
            self._misbehave()
            return iter(())
        return super().run(rows, refill, step)


class GatedEngine(FakeEngine):
    """Answers nothing before its gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.gate = threading.Event(), threading.Event()

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Wait for the gate, then answer."""
        self.started.set()
        self.gate.wait(10)
        yield from map(answer, rows)


def wait_for_results(documents: Documents, count: int) -> dict[str, Body]:
    """Return the job's bodies by custom id once there are `count` of them, and no more."""
    wait_until(lambda: documents.num_results() >= count, what=f"{count} results")
    results = documents.results()

    assert len(results) == count

    return {result.custom_id: result.body for result in results}
