"""The control process: what has to happen regularly, whoever is at work.

`python -m workers.control`, configured by `DOCMILL_*`. arq schedules: once a second the reaper
looks for dead workers. Several control processes may run; each round is done by one of them. arq is
kept behind this module: a lost Redis, which ends arq's worker, starts another one here. May import
arq, docmill and the shared modules in workers.
"""

import asyncio
import logging
import sys
from datetime import UTC
from typing import Any

import msgpack
from arq.cron import CronJob, cron
from arq.worker import Worker

from docmill.connection import REDIS_ERRORS
from workers import log
from workers.arq_connection import arq_redis
from workers.process import Process, run
from workers.reaper import confirmation_s, reap
from workers.streams import Outage, insist

_POLL_S = 0.5
_JOB_TIMEOUT_S = 30
_EVERY_SECOND = set(range(60))


def set_limits(process: Process) -> None:
    """Write the configured backlog limits to where submit.lua looks."""
    settings = process.settings
    limits = {"max_docs": settings.backlog_max_docs, "max_bytes": settings.backlog_max_bytes}
    process.client.hset(process.keys.backlog, mapping=limits)


def reap_once(process: Process) -> None:
    """Look for dead workers once."""
    settings = process.settings
    try:
        if not process.client.hexists(process.keys.backlog, "max_docs"):
            set_limits(process)  # Redis has lost its data since
        report = reap(
            process.client,
            process.keys,
            confirm_s=confirmation_s(settings.heartbeat_ttl_s),
            max_deliveries=settings.max_deliveries,
        )
    except REDIS_ERRORS as error:
        log.get().warning("reaper.interrupted", problem=str(error))
        return  # the next round goes on
    if report.forgotten:  # without entries they had said goodbye
        note = log.get().warning if report.handed_back or report.dead else log.get().info
        note(
            "consumers.reaped",
            consumers=report.forgotten,
            handed_back=report.handed_back,
            dead=report.dead,
        )


def _schedule(process: Process) -> list[CronJob]:
    async def reap_dead(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> None:
        await asyncio.to_thread(reap_once, process)

    # arq's keys for jobs have fixed prefixes: the name is what keeps two namespaces apart
    name = f"{process.keys.prefix}:reap"
    return [cron(reap_dead, name=name, second=_EVERY_SECOND, timeout=_JOB_TIMEOUT_S)]


def _worker(process: Process) -> Worker:
    assert process.settings.redis_url is not None
    queue = f"{process.keys.prefix}:arq:queue"
    pool = arq_redis(process.settings.redis_url.get_secret_value(), queue)
    return Worker(
        queue_name=queue,
        cron_jobs=_schedule(process),
        redis_pool=pool,
        handle_signals=False,
        job_timeout=_JOB_TIMEOUT_S,
        keep_result=0,
        poll_delay=_POLL_S,
        health_check_interval=10,
        retry_jobs=False,
        job_serializer=msgpack.packb,
        job_deserializer=msgpack.unpackb,
        timezone=UTC,
    )


async def _run_worker(process: Process, outage: Outage) -> None:
    """Run arq until the process is to stop; raises what ends it earlier."""
    worker = _worker(process)
    await worker.pool.ping()
    outage.recovered()
    running = asyncio.create_task(worker.async_run())
    stopping = asyncio.create_task(_until_stopped(process))
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        # not worker.close(): it raises what it cancelled, and talks to a Redis that may be gone
        tasks = [stopping, running, *worker.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await worker.pool.aclose(close_connection_pool=True)


async def _until_stopped(process: Process) -> None:
    while not process.stop.is_set():
        process.progress.touch()
        await asyncio.sleep(0.1)


def work(process: Process) -> None:
    """Do the regular work until the process is asked to stop."""
    logging.getLogger("arq").setLevel(logging.WARNING)  # it logs every round
    outage = Outage(process.pause)
    insist(lambda: set_limits(process), outage, process.stop.is_set)
    process.presence.announce("ready")
    while not process.stop.is_set():
        try:
            asyncio.run(_run_worker(process, outage))
        except REDIS_ERRORS as error:
            outage.failed(error)


if __name__ == "__main__":
    sys.exit(run("control", work))
