"""arq, and everything that has to be known about it, in one place.

What it would do by itself, and what is done about it here:

- It ends when Redis restarts: `serve` raises then, and the caller starts workers anew.
- A job whose worker was killed waits until the job's whole time would be over, and a job that takes
  longer than that is begun twice: a task holds its job for `LEASE_S` at a time (`holding`).
- Queueing a job returns None both when it is queued already and when the connection was lost in the
  middle of it: what must not be forgotten is offered every second until it has ended (`offer`).
- Long jobs would keep the scheduled ones from running: the two have workers of their own.
- A cancelled job leaves its thread running, and the end of an event loop waits for it: `in_thread`
  does not.
- It shows itself as alive for an hour: here for 11 s.

Its connection, its keys' names and its records' form are `workers.arq_connection`'s. May import arq
and redis.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC
from typing import Any, TypeVar

import msgpack
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix
from arq.cron import CronJob
from arq.worker import Function, Worker
from redis.exceptions import RedisError

T = TypeVar("T")

#: How long a task's job stays taken when its process dies.
LEASE_S = 8.0
#: A task may take as long as it takes; arq wants a number.
NO_LIMIT_S = 366 * 24 * 3600
#: How long one scheduled round may take.
ROUND_LIMIT_S = 30
_POLL_S = 0.5
_MAX_TASKS = 8


class LeaseLost(Exception):
    """Somebody else may be at this job by now."""


def make_worker(
    pool: ArqRedis, *, crons: Sequence[CronJob] = (), functions: Sequence[Function] = ()
) -> Worker:
    """Return a worker for the pool's queue; it runs in `serve`.

    Functions are for tasks that are offered until they have ended, so they may be tried for ever.
    """
    worker = Worker(
        functions,
        queue_name=pool.default_queue_name,
        cron_jobs=crons,
        redis_pool=pool,
        handle_signals=False,
        max_jobs=_MAX_TASKS,
        job_timeout=ROUND_LIMIT_S,
        keep_result=0,
        poll_delay=_POLL_S,
        health_check_interval=10,
        job_serializer=msgpack.packb,
        job_deserializer=msgpack.unpackb,
        timezone=UTC,
    )
    if functions:
        worker.in_progress_timeout_s = LEASE_S
    return worker


async def serve(workers: Sequence[Worker], stopped: Callable[[], Awaitable[None]]) -> None:
    """Run workers until `stopped` returns, and cancel what they do then.

    Raises:
        Exception: What ended one of them; a lost connection, for instance.
    """
    running = [asyncio.create_task(worker.async_run()) for worker in workers]
    stopping = asyncio.ensure_future(stopped())
    try:
        done, _ = await asyncio.wait((*running, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        # not worker.close(): it raises what it cancelled, and talks to a Redis that may be gone
        jobs = [job for worker in workers for job in worker.tasks.values()]
        for task in (stopping, *running, *jobs):
            task.cancel()
        await asyncio.gather(stopping, *running, *jobs, return_exceptions=True)
        for worker in workers:
            await worker.pool.aclose(close_connection_pool=True)


async def offer(pool: ArqRedis, function: str, job_id: str, *args: Any) -> None:
    """Queue a job unless it is queued or running; to be called until the job's work is done."""
    await pool.enqueue_job(function, *args, _job_id=job_id)


@contextlib.asynccontextmanager
async def holding(pool: ArqRedis, job_id: str) -> AsyncIterator[asyncio.Future[None]]:
    """Keep a job taken for as long as the block runs.

    Yields:
        What raises LeaseLost, if the job could not be kept in time.
    """
    task = asyncio.create_task(_renew(pool, in_progress_key_prefix + job_id))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _renew(pool: ArqRedis, key: str) -> None:
    while True:
        try:
            is_held = await pool.pexpire(key, int(LEASE_S * 1000))
        except (RedisError, OSError) as error:
            raise LeaseLost from error
        if not is_held:
            raise LeaseLost
        await asyncio.sleep(LEASE_S / 4)


async def in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread of its own, which nobody waits for when this is cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # cancelled meanwhile
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, problem = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, problem)

    threading.Thread(target=run, name="control", daemon=True).start()
    return await future
