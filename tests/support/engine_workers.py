"""An engine worker inside the test's process, with an engine of the test's choice."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from docmill.keys import Keys
from engine.base import Engine
from workers.engine_worker import EngineWorker
from workers.lifecycle import Presence, Progress, consumer_name
from workers.models import FAKE
from workers.process import Process
from workers.settings import Settings
from workers.streams import connect


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
