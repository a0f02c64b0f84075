"""`docmill ingest`, `export` and `tasks`: ask the service, and look how far it is.

May import everything in docmill.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from docmill.cli import address
from docmill.cli.asked import check_question, check_service_reading, hints
from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from docmill.cli.input import check_service_input
from docmill.cli.jobs import Target
from docmill.cli.output import printable, say, write_json, write_line
from docmill.client import new_job_id
from docmill.errors import JobError, JobNotFound
from docmill.job import Job
from docmill.link import Link
from docmill.progress import counted, show_progress
from docmill.request import check_job_id, check_tier
from docmill.shards import Shards
from docmill.tasks import Task, ask, find, list_tasks, new_task_id
from docmill.tenant import check_tenant

_POLL_S = 0.25
#: How long Redis may be away while the end of a task is waited for.
_RECONNECT_S = 60.0


def ingest(
    target: Target,
    paths: list[str],
    asked: dict[str, Any],
    reading: dict[str, str],
    *,
    tier: str,
    job_id: str | None,
    waits: bool,
    as_json: bool,
) -> int:
    """Ask for files to be read into a job and print the job's id."""
    now = datetime.now(UTC)
    check_question(asked)
    check_service_input(paths, asked)
    check_service_reading(paths, reading)
    for hint in hints(asked):
        say(hint)
    task = Task(
        task_id=new_task_id(now),
        kind="ingest",
        job_id=new_job_id(now) if job_id is None else check_job_id(job_id),
        paths=tuple(paths),
        options=asked,
        reading=reading,
        tenant=check_tenant(target.tenant),
        tier=check_tier(tier),
        asked_at=now.timestamp(),
    )
    return _ask(target, task, task.job_id, waits=waits, as_json=as_json)


def export(
    target: Target, job_id: str, output: str, *, is_partial: bool, waits: bool, as_json: bool
) -> int:
    """Ask for a job's results to be written and print the task's id."""
    now = datetime.now(UTC)
    task = Task(
        task_id=new_task_id(now),
        kind="export",
        job_id=check_job_id(job_id),
        paths=(output,),
        is_partial=is_partial,
        asked_at=now.timestamp(),
    )
    return _ask(target, task, task.task_id, waits=waits, as_json=as_json)


def _ask(target: Target, task: Task, shown: str, *, waits: bool, as_json: bool) -> int:
    with _shards(target) as shards:
        link = shards.holding(task.job_id)
        if task.kind == "export":
            _refuse_missing(link, task.job_id)
        ask(link, task)
        if not as_json:
            write_line(shown)
        try:
            task = _wait(link, task) if waits else task
        except KeyboardInterrupt:
            how = f"'docmill tasks {task.task_id}' shows how far it is"
            say(f"interrupted; the service goes on: {how}")
            return EXIT_INTERRUPTED
    if as_json:
        write_json(task.to_dict())
    else:
        how = "" if waits else f"; 'docmill tasks {task.task_id}' shows how far it is"
        say(f"{_describe(task)}{how}")
    return EXIT_INCOMPLETE if task.state == "failed" else EXIT_OK


def _refuse_missing(link: Link, job_id: str) -> None:
    """Refuse to export a job that is not there, unless one that was asked for will fill it.

    Raises:
        JobNotFound, ResultExpired: It is not there, or not any more.
    """
    try:
        Job(link, job_id).status()
    except JobError:
        filling = (task for task in list_tasks(link) if task.kind == "ingest")
        if not any(task.job_id == job_id and not task.has_ended for task in filling):
            raise


@contextmanager
def _shards(target: Target) -> Iterator[Shards]:
    named = address.find(target.redis_url, target.namespace, target.state_dir.expanduser())
    shards = Shards(*named, _RECONNECT_S)
    try:
        yield shards
    finally:
        shards.close()


def _wait(link: Link, task: Task) -> Task:
    with show_progress() as reporter:
        while True:
            found = find(link, task.task_id)
            if found is None:
                raise JobNotFound(f"task {task.task_id} is gone from Redis; ask for it again")
            counts = found.counts
            done = counts.get("read", counts.get("results", 0))
            reporter.update(done, None, num_failed=counts.get("refused", 0))
            if found.has_ended:
                return found
            time.sleep(_POLL_S)


def _describe(task: Task) -> str:
    what = {"ingest": "into", "export": "of"}[task.kind]
    counts = ", ".join(f"{count:,} {name}" for name, count in task.counts.items())
    said = f"{task.task_id}  {task.kind} {what} {task.job_id}: {task.state}"
    said += f" ({counts})" if counts else ""
    said += f", {', '.join(task.paths)}"
    return printable(f"{said}: {task.error}" if task.error else said)


def show(target: Target, task_id: str | None, *, as_json: bool) -> int:
    """Print one task, or those of all shards, the newest first.

    Raises:
        JobNotFound: There is no such task.
    """
    if task_id is not None:
        return _show_one(target, task_id, as_json=as_json)
    with _shards(target) as shards:
        found = [task for link in shards.all() for task in list_tasks(link)]
    found.sort(key=lambda task: task.asked_at, reverse=True)
    if as_json:
        write_json([task.to_dict() for task in found])
        return EXIT_OK
    for task in found:
        write_line(_describe(task))
    if not found:
        say(f"{counted(0, 'task')}: 'docmill ingest --help' says what can be asked for")
    return EXIT_OK


def _show_one(target: Target, task_id: str, *, as_json: bool) -> int:
    with _shards(target) as shards:
        found = next(filter(None, (find(link, task_id) for link in shards.all())), None)
    if found is None:
        raise JobNotFound(
            f"there is no task {task_id!r}, or not any more; 'docmill tasks' lists those there are"
        )
    if as_json:
        write_json(found.to_dict())
    else:
        write_line(_describe(found))
    return EXIT_OK
