"""Celery: one worker process, tasks run in it (`solo`), many messages fetched ahead.

Its guide to optimising says so for many short tasks; prefork with one child is slower, because
every task then crosses a pipe. The sender keeps one producer and does not subscribe to results,
which a client that reads them would do for each message. May import celery.
"""

from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery

from bench.peers.base import RESULT

PREFETCH = 128


class Peer:
    """See `bench.peers.base.Side`."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("unix://", "redis+socket://")

    def work(self) -> None:
        """See `Side.work`."""
        app = _app(broker=self._url, backend=self._url)
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=error")
        app.worker_main(["worker", "--pool=solo", "--concurrency=1", *quiet])

    def send_all(self, documents: Iterator[str]) -> None:
        """See `Side.send_all`."""
        app = _app(broker=self._url)
        with app.producer_or_acquire() as producer:
            for document in documents:
                app.tasks["answer"].apply_async((document,), producer=producer)

    def sender(self) -> Callable[[str], None]:
        """See `Side.sender`."""
        app = _app(broker=self._url)
        return app.tasks["answer"].delay  # type: ignore[no-any-return]  # untyped


def _app(**options: Any) -> Any:
    app = Celery("bench", **options)
    app.conf.update(worker_prefetch_multiplier=PREFETCH, broker_connection_retry_on_startup=True)
    app.task(_answer, name="answer")
    app.finalize()
    return app


def _answer(document: str) -> str:
    return RESULT
