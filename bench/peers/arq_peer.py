"""arq: one worker process on uvloop, 50 jobs at a time, polling a hundred times a second.

By default it polls twice a second and runs 10 jobs at a time, which makes it ten times slower;
more than 50 jobs make it slower again. msgpack instead of pickle, as its page on serialisers
advises. May import arq, msgpack and uvloop.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgpack
import uvloop
from arq import Worker, create_pool, func
from arq.connections import ArqRedis, RedisSettings

from bench.peers.base import RESULT

MAX_JOBS = 50
POLL_DELAY_S = 0.01
CONCURRENT_SENDS = 32


class Peer:
    """See `bench.peers.base.Side`."""

    def __init__(self, url: str) -> None:
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._settings = RedisSettings.from_dsn(url)
        self._pool: ArqRedis | None = None

    def work(self) -> None:
        """See `Side.work`."""
        answer: Any = _answer  # arq's protocol wants a function of any arguments
        Worker(
            [func(answer, name="answer")],
            redis_settings=self._settings,
            max_jobs=MAX_JOBS,
            poll_delay=POLL_DELAY_S,
            job_serializer=msgpack.packb,
            job_deserializer=msgpack.unpackb,
            log_results=False,
        ).run()

    def send_all(self, documents: Iterator[str]) -> None:
        """See `Side.send_all`."""
        self._loop.run_until_complete(self._send_all(documents))

    async def _send_all(self, documents: Iterator[str]) -> None:
        while chunk := list(islice(documents, CONCURRENT_SENDS)):
            await asyncio.gather(*map(self._send, chunk))

    async def _send(self, document: str) -> None:
        if self._pool is None:
            self._pool = await create_pool(self._settings, job_serializer=msgpack.packb)
        await self._pool.enqueue_job("answer", document)

    def sender(self) -> Callable[[str], None]:
        """See `Side.sender`."""
        return lambda document: self._loop.run_until_complete(self._send(document))


async def _answer(context: dict[Any, Any], document: str) -> str:
    return RESULT
