"""taskiq with taskiq-redis' streams: one worker process on uvloop, 100 tasks at a time.

A message is acknowledged when its result is saved, the default, and stays in the stream. May import
taskiq, taskiq_redis and uvloop.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

import uvloop
from taskiq.api import run_receiver_task
from taskiq.serializers import MSGPackSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.peers.base import RESULT

MAX_TASKS = 100
CONCURRENT_SENDS = 32
RESULT_TTL_S = 3600


class Peer:
    """See `bench.peers.base.Side`."""

    def __init__(self, url: str) -> None:
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        results = RedisAsyncResultBackend(
            url,
            result_ex_time=RESULT_TTL_S,
            prefix_str="taskiq-result",
            serializer=MSGPackSerializer(),
        )
        self._broker = RedisStreamBroker(url, consumer_id="0").with_result_backend(results)
        self._broker.with_serializer(MSGPackSerializer())
        self._answer = self._broker.register_task(_answer, task_name="answer")
        self._has_started = False

    def work(self) -> None:
        """See `Side.work`."""
        self._loop.run_until_complete(
            run_receiver_task(
                self._broker, max_async_tasks=MAX_TASKS, validate_params=False, run_startup=True
            )
        )

    def send_all(self, documents: Iterator[str]) -> None:
        """See `Side.send_all`."""
        self._loop.run_until_complete(self._send_all(documents))

    async def _send_all(self, documents: Iterator[str]) -> None:
        while chunk := list(islice(documents, CONCURRENT_SENDS)):
            await self._start()
            await asyncio.gather(*map(self._send, chunk))

    async def _start(self) -> None:
        if not self._has_started:
            await self._broker.startup()
            self._has_started = True

    async def _send(self, document: str) -> None:
        await self._start()
        await self._answer.kiq(document)

    def sender(self) -> Callable[[str], None]:
        """See `Side.sender`."""
        return lambda document: self._loop.run_until_complete(self._send(document))


async def _answer(document: str) -> str:
    return RESULT
