"""`docmill status`: one job, or the service's workers, backlog, dead letters and latest jobs.

May import everything in docmill.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from docmill.cli.exit import EXIT_OK
from docmill.cli.jobs import Target
from docmill.cli.output import say, write_json, write_line
from docmill.cli.summary import describe
from docmill.dead import DeadLetters
from docmill.errors import JobError, MessageError
from docmill.job import Job, JobStatus
from docmill.link import Link
from docmill.parts import Parts, parts_of
from docmill.progress import counted, duration
from docmill.shards import Shards
from docmill.sharing import Sharing, read_sharing
from docmill.status import read_consumers
from docmill.wire import unpack

#: How many jobs `status` lists.
_NUM_LISTED = 20


@dataclass(frozen=True, slots=True)
class _Shown:
    """A job as `status` shows it: its counts, and what else is known of it.

    `shard` is None where there is one only, `producer_seen_at` once the job is sealed.
    """

    status: JobStatus
    name: str | None
    shard: int | None
    producer_seen_at: float | None
    parts: Parts

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        told = {**self.status.to_dict(), "name": self.name}
        if self.shard is not None:
            told["shard"] = self.shard
        if self.producer_seen_at is not None:
            told["producer_seen_at"] = self.producer_seen_at
        if self.parts.documents:
            told["parts"] = self.parts.to_dict()
        return told

    def line(self, now: float) -> str:
        """Tell it to a person."""
        words = [describe(self.status)]
        if parts := str(self.parts):
            words.append(parts)
        if self.name:
            words.append(f"{self.name!r}")
        if self.status.created_at is not None:
            words.append(f"opened {_age(self.status.created_at, now)} ago")
        if self.shard is not None:
            words.append(f"shard {self.shard}")
        return ", ".join(words)

    def advice(self, now: float) -> str | None:
        """Say what to do about a job whose producer may be gone."""
        if self.producer_seen_at is None or self.status.is_sealed:
            return None
        job_id = self.status.job_id
        return (
            f"{job_id} is not sealed: its producer was last heard of "
            f"{_age(self.producer_seen_at, now)} ago. If it is gone, submit again with "
            f"--job-id {job_id} to go on, or 'docmill cancel {job_id}'"
        )


def _age(moment: float, now: float) -> str:
    return duration(max(0.0, now - moment))


def status(target: Target, job_id: str | None, *, as_json: bool) -> int:
    """Print one job's counts, or what the service does."""
    now = datetime.now(UTC).timestamp()
    if job_id is not None:
        return _one(target, job_id, now, as_json=as_json)
    shards = target.shards()
    workers, jobs, backlog = workers_of(shards), _jobs(shards), _backlog(shards)
    num_dead, sharing = sum(map(_num_dead, shards.all())), read_sharing(shards)
    shards.close()
    if as_json:
        told = {"backlog": backlog, "dead_letters": num_dead, "workers": workers}
        told["sharing"] = sharing.to_dict()
        write_json({**told, "jobs": [job.to_dict() for job in jobs]})
        return EXIT_OK
    for worker in workers:
        write_line(f"{worker['role']:<11} {worker['state']:<9} {worker.get('model') or ''}")
    if not workers:
        write_line("no worker is running")
    documents = counted(backlog["documents"], "document")
    write_line(f"backlog     {documents}, {counted(backlog['bytes'], 'byte')}")
    if num_dead:
        write_line(f"dead        {counted(num_dead, 'dead letter')}: see 'docmill dead list'")
    if sharing.lookups:
        write_line(f"repeats     {_describe(sharing)}")
    for job in jobs:
        write_line(job.line(now))
        if advice := job.advice(now):
            say(advice)
    return EXIT_OK


def _describe(sharing: Sharing) -> str:
    """Tell how much was answered without being computed."""
    num_shared = sharing.cached + sharing.followed - sharing.promoted
    return (
        f"{counted(num_shared, 'document')} of {sharing.lookups:,} answered as repeats "
        f"({sharing.cached:,} from stored answers, {sharing.followed:,} with one being computed), "
        f"{counted(sharing.tokens_saved, 'prompt token')} saved; stored answers take "
        f"{counted(sharing.answer_bytes, 'byte')}"
    )


def _one(target: Target, job_id: str, now: float, *, as_json: bool) -> int:
    with target.client() as client:
        job = client.job(job_id)
        shown = _shown(job._link, job_id, job.status(), client._shards.count())
        failed = shown.status.failed
        letter = next(DeadLetters(job._link).list(job_id), None) if failed else None
    if as_json:
        write_json(shown.to_dict())
        return EXIT_OK
    write_line(shown.line(now))
    if advice := shown.advice(now):
        say(advice)
    if failed:
        say(f"'docmill results {job_id}' tells why {counted(failed, 'document')} failed")
    if letter is not None:
        say(
            f"'docmill dead list --job {job_id}' shows what was given up, 'docmill retry {job_id}' "
            "runs it again"
        )
    return EXIT_OK


def workers_of(shards: Shards) -> list[dict[str, Any]]:
    """Return what the workers that are alive say of themselves."""
    workers = [worker for link in shards.all() for worker in _workers_at(link)]
    return sorted(workers, key=lambda worker: str(worker["role"]))


def _workers_at(link: Link) -> Iterator[dict[str, Any]]:
    keys, client = link.keys, link.client
    shown = read_consumers(link.run(lambda: client.hgetall(keys.consumers)))
    beats = [keys.heartbeat(name) for name in shown]
    alive: Any = link.run(lambda: client.mget(beats)) if beats else []
    for (name, said), beat in zip(shown.items(), alive, strict=True):
        if beat is not None:
            yield {"consumer": name, **said}


def _num_dead(link: Link) -> int:
    return int(link.run(lambda: link.client.xlen(link.keys.dead)))


def _backlog(shards: Shards) -> dict[str, int]:
    depths = [_depth(link) for link in shards.all()]
    documents, num_bytes = map(sum, zip(*depths, strict=True))
    return {"documents": documents, "bytes": num_bytes}


def _depth(link: Link) -> tuple[int, int]:
    names = ("docs", "bytes")
    docs, num_bytes = link.run(lambda: link.client.hmget(link.keys.backlog, names))
    return int(docs or 0), int(num_bytes or 0)


def _jobs(shards: Shards) -> list[_Shown]:
    """Return the latest jobs that are still kept, the newest first."""
    links = shards.all()
    jobs = [job for link in links for job in _jobs_at(link, len(links))]
    return sorted(jobs, key=lambda job: -(job.status.created_at or 0.0))[:_NUM_LISTED]


def _jobs_at(link: Link, num_shards: int) -> Iterator[_Shown]:
    ids: Any = link.run(lambda: link.client.zrevrange(link.keys.jobs, 0, _NUM_LISTED - 1))
    for job_id in map(bytes.decode, ids):
        with contextlib.suppress(JobError):  # it has expired
            yield _shown(link, job_id, Job(link, job_id).status(), num_shards)


def _shown(link: Link, job_id: str, status: JobStatus, num_shards: int) -> _Shown:
    """Look up what a job's counts do not tell."""

    def read() -> list[Any]:
        pipe = link.client.pipeline(transaction=False)
        pipe.hget(link.keys.job(job_id), "meta")
        pipe.zscore(link.keys.open_jobs, job_id)
        replies: list[Any] = pipe.execute()
        return replies

    meta, seen_at = link.run(read)
    shard = link.keys.shard if num_shards > 1 else None
    parts = parts_of(link, job_id) if status.waiting else Parts()
    return _Shown(status, _name_in(meta), shard, seen_at, parts)


def _name_in(meta: bytes | None) -> str | None:
    """Return the name that a job was given, if any; anybody may have written anything there."""
    with contextlib.suppress(MessageError):
        name = unpack(meta or b"").get("name")
        return name if isinstance(name, str) else None
    return None
