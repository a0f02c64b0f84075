"""What users ask the service to do: read files into a job, write a job's results to a file.

Decides how a task begins, goes on and ends; what it does is in `workers.task_files`. A task may be
killed at any moment: it stays on the list until it has ended, and is run again. Each attempt is
named in the task's record, so that one that was given up and wakes later ends itself. Knows nothing
of arq. May import docmill.
"""

import contextlib
import secrets
import threading
import time
from typing import Any

from docmill.client import Client
from docmill.connection import REDIS_ERRORS
from docmill.errors import DecodeError, DocmillError, MessageError
from docmill.link import Abandoned, abandoned
from docmill.tasks import ENDED_TTL_S, MAX_ENDED, Task
from docmill.wire import Failure
from workers import log
from workers.lifecycle import wall_clock
from workers.process import Process
from workers.task_files import export, ingest, usable_folder

#: Processes that may die of a task before it is taken for the cause.
MAX_RUNS = 20
#: Seconds between two notes of how far a task is.
_NOTE_EVERY_S = 1.0


class Tasks:
    """The tasks of one shard, as a control process sees them."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._client = process.client
        self._keys = process.keys

    def waiting(self) -> list[str]:
        """Return the ids of the tasks that can be worked on, running ones included.

        An export that is to hold all of a job's results waits for the job's end, and before that
        for those that fill the job.
        """
        tasks = self._readable(self._client.hgetall(self._keys.tasks))
        being_filled = {task.job_id for task in tasks if task.kind == "ingest"}
        return [
            task.task_id
            for task in tasks
            if task.kind == "ingest"
            or task.is_partial
            or (task.job_id not in being_filled and self._has_ended(task.job_id))
        ]

    def _readable(self, records: dict[bytes, bytes]) -> list[Task]:
        """Read records; take those off the list that nobody can read, and nobody ever ended."""
        tasks = []
        for field, record in records.items():
            try:
                task = Task.decode(record)
                if task.task_id.encode() != field:
                    raise DecodeError(f"it is the record of {task.task_id}")
                tasks.append(task)
            except MessageError as error:
                name = field.decode(errors="replace")
                log.get().warning("task.refused", task=name, problem=error.message)
                self._client.hdel(self._keys.tasks, field)
        return tasks

    def _has_ended(self, job_id: str) -> bool:
        """Whether a job has ended; one that is not there has, and the task says so."""
        key = self._keys.job(job_id)
        created_at, finished_at = self._client.hmget(key, "created_at", "finished_at")
        return created_at is None or finished_at is not None

    def run(self, task_id: str, is_given_up: threading.Event) -> None:
        """Work on a task until it has ended or `is_given_up` is set; it then is as it was.

        Raises:
            redis.RedisError: Redis failed; the task is tried again.
        """
        task = self._begin(task_id)
        if task is None:
            return
        # all waiting in docmill heeds it, in this thread alone
        token = abandoned.set(is_given_up)
        try:
            self._carry_out(task)
        finally:
            abandoned.reset(token)

    def _carry_out(self, task: Task) -> None:
        task_id = task.task_id
        log.get().info("task.started", task=task_id, kind=task.kind, job=task.job_id)
        try:
            counts = self._work(task)
        except Abandoned:
            # no fault of the task: another process goes on
            self._store(task, state="queued", num_runs=task.num_runs - 1)
        except DocmillError as error:
            if error.retryable:
                log.get().warning("task.interrupted", task=task_id, problem=error.message)
                self._store(task, state="queued")
            else:
                self._fail(task, error.code, error.message)
        except REDIS_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours must not be tried for ever
            log.get().exception("task.crashed", task=task_id)
            self._fail(task, DocmillError.code, f"{type(error).__name__}: {error}")
        else:
            log.get().info("task.done", task=task_id, **counts)
            self._store(task, state="done", counts=counts, ended_at=wall_clock())

    def _begin(self, task_id: str) -> Task | None:
        """Name a new attempt in the task's record; None when there is nothing to do."""
        record = self._client.hget(self._keys.tasks, task_id)
        if record is None:
            return None
        try:
            found = Task.decode(record)
        except MessageError:
            return None  # `waiting` refuses it
        task = self._store(
            found,
            run=secrets.token_hex(8),
            state="running",
            holder=self._process.consumer,
            num_runs=found.num_runs + 1,
            started_at=found.started_at or wall_clock(),
        )
        if task is not None and task.num_runs > MAX_RUNS:
            message = f"given up: {MAX_RUNS} control processes died, or lost Redis, at this task"
            self._fail(task, DocmillError.code, message)
            return None
        return task

    def _fail(self, task: Task, code: str, message: str) -> None:
        log.get().warning("task.failed", task=task.task_id, code=code, problem=message)
        failure = Failure(code=code, message=message)
        self._store(task, state="failed", error=failure, ended_at=wall_clock())

    def _store(self, task: Task, **changed: Any) -> Task | None:
        """Change a task's record, unless another attempt has taken the task over: None then."""
        new = task.model_copy(update=changed)
        keys = self._keys

        def store(pipe: Any) -> bool:
            record = pipe.hget(keys.tasks, task.task_id)
            if record is None or Task.decode(record).run != task.run:
                return False
            pipe.multi()
            if not new.has_ended:
                pipe.hset(keys.tasks, task.task_id, new.encode())
                return True
            pipe.hset(keys.tasks_ended, task.task_id, new.encode())
            pipe.expire(keys.tasks_ended, ENDED_TTL_S)
            pipe.hdel(keys.tasks, task.task_id)
            return True

        is_ours = self._client.transaction(store, keys.tasks, value_from_callable=True)
        return new if is_ours else None

    def _work(self, task: Task) -> dict[str, int]:
        """Do it, and return the final counts."""
        files_dir = usable_folder(self._process.settings.files_dir)
        next_note_at = time.monotonic() + _NOTE_EVERY_S

        def note(counts: dict[str, int]) -> None:
            nonlocal next_note_at
            if time.monotonic() < next_note_at:
                return
            next_note_at = time.monotonic() + _NOTE_EVERY_S
            if self._store(task, counts=counts) is None:
                raise Abandoned  # another attempt has taken over

        settings = self._process.settings
        assert settings.redis_url is not None
        url = settings.redis_url.get_secret_value()
        with Client(
            url,
            settings.namespace,
            max_document_bytes=settings.max_document_bytes,
            tenant=task.tenant,
        ) as client:
            if task.kind == "ingest":
                return ingest(client, task, files_dir, note, settings.max_document_bytes)
            return export(client, task, files_dir, note)

    def forget_ended(self) -> None:
        """Forget tasks that ended long ago, and the oldest of very many."""
        key = self._keys.tasks_ended
        ended_at: dict[bytes, float] = {}
        for task_id, record in self._client.hgetall(key).items():
            with contextlib.suppress(MessageError):
                ended_at[task_id] = Task.decode(record).ended_at or 0.0
        newest = sorted(ended_at, key=lambda task_id: ended_at[task_id], reverse=True)
        oldest_kept = wall_clock() - ENDED_TTL_S
        gone = [
            task_id
            for place, task_id in enumerate(newest)
            if place >= MAX_ENDED or ended_at[task_id] < oldest_kept
        ]
        if gone:
            self._client.hdel(key, *gone)
