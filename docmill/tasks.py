"""What the service is asked to do beside answering: read in files, write out results.

Decides the record of a task and how one is asked for; the work itself is done in the service, by
`workers.tasks`. A shard's open tasks stand in the hash `tasks`, those that have ended in
`tasks:ended`, each as task id -> record: asking for the same task twice is asking once. May import
docmill.link and docmill.wire.
"""

import secrets
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from docmill.errors import MessageError
from docmill.link import Link
from docmill.wire import Failure, Record

State = Literal["queued", "running", "done", "failed"]

#: How long a task that has ended is remembered, and how many are.
ENDED_TTL_S = 7 * 24 * 3600
MAX_ENDED = 1000


class Task(Record):
    """One task: what is asked for, and how far it is. Moments are UNIX seconds.

    `ingest` reads `paths` into the job as `reading` says (the arguments of `docmill.read`), asking
    `options` on behalf of `tenant`; `export` writes the job's results to the
    one path, once the job has ended unless `is_partial`. All paths lie below the service's folder
    of files. `holder` is the consumer that does it or did it last, `run` names that attempt, and
    `num_runs` counts those that began.
    """

    task_id: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")
    kind: Literal["ingest", "export"]
    job_id: str
    paths: tuple[str, ...]
    options: dict[str, Any] = Field(default_factory=dict)
    reading: dict[str, str] = Field(default_factory=dict)
    tenant: str = ""
    tier: str = "batch"
    is_partial: bool = False
    asked_at: float
    state: State = "queued"
    holder: str | None = None
    run: str = ""
    num_runs: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    error: Failure | None = None
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ("done", "failed")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return self.model_dump(mode="json", exclude={"options", "reading", "run"})


def new_task_id(now: datetime) -> str:
    """Make up a task id that sorts by time and can be typed."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def ask(link: Link, task: Task) -> None:
    """Ask for a task; the service begins it within a second or two.

    Raises:
        BrokerUnavailable: Redis cannot be reached.
    """
    key, record = link.keys.tasks, task.encode()
    link.run(lambda: link.client.hsetnx(key, task.task_id, record))


def find(link: Link, task_id: str) -> Task | None:
    """Return a task as it is now; None if there is no such task, or not any more."""

    def read() -> list[Any]:
        pipe = link.client.pipeline(transaction=True)
        pipe.hget(link.keys.tasks_ended, task_id)
        pipe.hget(link.keys.tasks, task_id)
        replies: list[Any] = pipe.execute()
        return replies

    records = [record for record in link.run(read) if record is not None]
    return Task.decode(records[0]) if records else None


def list_tasks(link: Link) -> list[Task]:
    """Return all tasks that are remembered, the newest first."""

    def read() -> list[Any]:
        pipe = link.client.pipeline(transaction=True)
        pipe.hgetall(link.keys.tasks_ended)
        pipe.hgetall(link.keys.tasks)
        replies: list[Any] = pipe.execute()
        return replies

    ended, still_open = link.run(read)
    found = []
    for record in (still_open | ended).values():
        try:
            found.append(Task.decode(record))
        except MessageError:
            continue  # written by another version, which shows it
    return sorted(found, key=lambda task: task.asked_at, reverse=True)
