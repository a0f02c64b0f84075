"""The control process: what has to happen regularly, whoever is at work, and what users ask for.

`python -m workers.control`, configured by `DOCMILL_*`. arq schedules a round every second and every
minute (`workers.rounds`), and the tasks that users asked for (`workers.tasks`). Several control
processes may run; each round and each task is done by one of them. A lost Redis, which ends arq's
workers, starts others here. May import docmill and the shared modules in workers.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from functools import partial
from typing import Any

from arq.connections import ArqRedis
from arq.cron import CronJob, cron
from arq.worker import Worker, func

from docmill.connection import REDIS_ERRORS, is_out_of_memory
from workers import arq_tasks, log
from workers.arq_connection import arq_redis
from workers.cautions import warn_of_forgetting
from workers.process import Process, command_line, run
from workers.rounds import Rounds
from workers.streams import Outage, is_outage
from workers.task_files import usable_folder
from workers.tasks import Tasks

_EVERY_SECOND = set(range(60))
#: Redis counts as well again after so long: with its memory all but full it works now and then.
_SETTLED_S = 3.0
#: Of a round that was cut off; doing it late does no harm, and refusing it would be logged.
_TRIES = 10
_TASK = "task"
_PASSING: tuple[type[Exception], ...] = (*REDIS_ERRORS, arq_tasks.LeaseLost)


class Control:
    """One control process at work."""

    def __init__(self, process: Process, *, is_own_redis: bool = False) -> None:
        self._process = process
        self._is_own_redis = is_own_redis
        self._tasks = Tasks(process)
        self._rounds = Rounds(process, self._tasks)
        self._outage = Outage(process.pause)
        self._has_begun = False

    def work(self) -> None:
        """Do the regular work, and what is asked for, until the process is asked to stop.

        Raises:
            redis.ResponseError: Redis refuses even the first write; repeating it is useless.
        """
        while not self._process.stop.is_set():
            try:
                if not (self._has_begun or self._is_own_redis):
                    warn_of_forgetting(self._process.client, self._process.settings.shard)
                self._rounds.set_limits()
                self._process.presence.announce("ready")
                self._has_begun = True
                asyncio.run(self._serve())
            except REDIS_ERRORS as error:
                if not (self._has_begun or is_outage(error)):
                    raise
                self._outage.failed(error)
                if is_out_of_memory(error):
                    self._do_round()

    def _do_round(self) -> None:
        """Do without arq what must go on, above all when memory is full: arq schedules by writing.

        The rounds themselves need no memory, and may be done by all processes at once.
        """
        self._process.presence.announce("ready")
        self._rounds.every_second()

    async def _serve(self) -> None:
        """Run arq until the process is to stop; raises what ends it earlier."""
        for_rounds, for_tasks = self._pool("queue"), self._pool("tasks")
        workers = (
            arq_tasks.make_worker(for_rounds, crons=self._crons(for_tasks)),
            self._task_worker(for_tasks),
        )
        await arq_tasks.serve(workers, self._stopped)

    def _pool(self, name: str) -> ArqRedis:
        url = self._process.settings.known_redis_url()
        return arq_redis(url, f"{self._process.keys.prefix}:arq:{name}")

    async def _stopped(self) -> None:
        """Wait for the process' stop."""
        began_at = time.monotonic()
        while not self._process.stop.is_set():
            self._process.progress.touch()
            if time.monotonic() - began_at > _SETTLED_S:
                self._outage.recovered()
            await asyncio.sleep(0.1)

    def _crons(self, for_tasks: ArqRedis) -> list[CronJob]:
        async def every_second(ctx: dict[Any, Any]) -> None:
            await arq_tasks.in_thread(self._rounds.every_second)
            # an outage ends arq's workers too, which is logged, and the next round offers again
            with contextlib.suppress(*REDIS_ERRORS):
                for task_id in self._rounds.waiting_tasks:
                    await arq_tasks.offer(for_tasks, _TASK, task_id, task_id)

        async def every_minute(ctx: dict[Any, Any]) -> None:
            await arq_tasks.in_thread(self._rounds.every_minute)

        return [
            cron(every_second, name="every_second", second=_EVERY_SECOND, max_tries=_TRIES),
            cron(every_minute, name="every_minute", second=30, max_tries=_TRIES),
        ]

    def _task_worker(self, pool: ArqRedis) -> Worker:
        async def do(ctx: dict[Any, Any], task_id: str) -> None:
            is_given_up = threading.Event()
            try:
                async with arq_tasks.holding(pool, ctx["job_id"]) as lost:
                    work = asyncio.create_task(
                        arq_tasks.in_thread(lambda: self._tasks.run(task_id, is_given_up))
                    )
                    await asyncio.wait((work, lost), return_when=asyncio.FIRST_COMPLETED)
                    (work if work.done() else lost).result()
            except _PASSING as error:
                log.get().warning("task.interrupted", task=task_id, problem=repr(error))
            finally:
                is_given_up.set()

        unlimited = arq_tasks.NO_LIMIT_S
        return arq_tasks.make_worker(
            pool, functions=[func(do, name=_TASK, timeout=unlimited, max_tries=unlimited)]
        )


def work(process: Process, *, is_own_redis: bool = False) -> None:
    """Do a control process' work until it is asked to stop.

    Args:
        process: Its surroundings.
        is_own_redis: Redis was started for this service, and forgets what it is meant to forget.

    Raises:
        ConfigError: The folder of files is none.
    """
    if process.settings.files_dir is not None:
        usable_folder(process.settings.files_dir)
    logging.getLogger("arq").setLevel(logging.WARNING)  # it logs every round
    Control(process, is_own_redis=is_own_redis).work()


def _main() -> int:
    parser = command_line("workers.control", __doc__)
    parser.add_argument(
        "--own-redis",
        action="store_true",
        help="Redis was started for this service: do not warn of what it may forget",
    )
    arguments = parser.parse_args()
    return run("control", partial(work, is_own_redis=arguments.own_redis))


if __name__ == "__main__":
    sys.exit(_main())
