"""dramatiq: one worker process of 8 threads, its default, that fetches far ahead of them.

By default it fetches 16 messages and then waits, which makes it a third slower (the setting is its
`dramatiq_queue_prefetch`). Sending has no bulk call: a message is one script call. May import
dramatiq.
"""

import threading
from collections.abc import Callable, Iterator

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.peers.base import RESULT

THREADS = 8
PREFETCH = 128


class Peer:
    """See `bench.peers.base.Side`."""

    def __init__(self, url: str) -> None:
        self._broker = RedisBroker(url=url)
        backend = RedisBackend(url=url, use_namespace_prefix_keys=True)
        self._broker.add_middleware(Results(backend=backend, store_results=True))
        dramatiq.set_broker(self._broker)
        self._answer = dramatiq.actor(_answer, actor_name="answer", broker=self._broker)

    def work(self) -> None:
        """See `Side.work`."""
        worker = dramatiq.Worker(self._broker, worker_threads=THREADS)
        worker.queue_prefetch = PREFETCH
        worker.start()
        threading.Event().wait()

    def send_all(self, documents: Iterator[str]) -> None:
        """See `Side.send_all`."""
        for document in documents:
            self._send(document)

    def sender(self) -> Callable[[str], None]:
        """See `Side.sender`."""
        return self._send

    def _send(self, document: str) -> None:
        self._answer.send(document)


def _answer(document: str) -> str:
    return RESULT
