"""`docmill submit`, `status`, `results`, `pause`, `resume`, `cancel` and `retry`: what they do.

May import everything in docmill.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from docmill.cli import address
from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_OK
from docmill.cli.input import documents, look_through
from docmill.cli.output import counted, say, write_json, write_line, write_record
from docmill.cli.resume import OutputFile
from docmill.cli.summary import Tally
from docmill.client import Client
from docmill.errors import JobError, ResultTimeout
from docmill.job import Job, JobStatus, RetryReport
from docmill.link import Link
from docmill.results import Result
from docmill.shards import Shards

#: How many jobs `status` lists.
_NUM_LISTED = 20
#: How long a read of results that are there already may take.
_AT_ONCE_S = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """The service that a command speaks to."""

    redis_url: str | None
    namespace: str | None
    state_dir: Path

    def client(self) -> Client:
        """Return a client whose Redis answers.

        Raises:
            ConfigError: No service is known.
            BrokerUnavailable: Its Redis cannot be reached.
        """
        client = Client(*self._address())
        client.ping()
        return client

    def shards(self) -> Shards:
        """Return connections for what no client offers."""
        return Shards(*self._address(), reconnect_s=0.0)

    def _address(self) -> tuple[str, str]:
        return address.find(self.redis_url, self.namespace, self.state_dir.expanduser())


def submit(
    target: Target,
    inputs: list[str],
    options: dict[str, Any],
    *,
    tier: str,
    job_id: str | None,
    waits: bool,
    as_json: bool,
) -> int:
    """Submit documents as one job and print its id."""
    look_through(inputs, options)
    with target.client() as client:
        _warn_without_workers(target)
        job = client.submit(
            documents(inputs, options), job_id=job_id, progress=True, **options | {"tier": tier}
        )
        status = job.wait() if waits else job.status()
    if as_json:
        write_json(status.to_dict())
    else:
        write_line(job.id)
        say(f"{_describe(status)}; 'docmill results {job.id} -o FILE' writes the answers")
    return EXIT_INCOMPLETE if waits and status.succeeded < status.submitted else EXIT_OK


def _warn_without_workers(target: Target) -> None:
    shards = target.shards()
    if not _workers(shards):
        say("no worker is running; the job waits until one is started")
    shards.close()


def status(target: Target, job_id: str | None, *, as_json: bool) -> int:
    """Print one job's counts, or the service's workers and latest jobs."""
    if job_id is not None:
        with target.client() as client:
            found = client.job(job_id).status()
        if as_json:
            write_json(found.to_dict())
        else:
            write_line(_describe(found))
        return EXIT_OK
    shards = target.shards()
    workers, jobs = _workers(shards), _jobs(shards)
    shards.close()
    if as_json:
        write_json({"workers": workers, "jobs": [job.to_dict() for job in jobs]})
        return EXIT_OK
    for worker in workers:
        write_line(f"{worker['role']:<11} {worker['state']:<9} {worker.get('model') or ''}")
    if not workers:
        write_line("no worker is running")
    for job in jobs:
        write_line(_describe(job))
    return EXIT_OK


def _workers(shards: Shards) -> list[dict[str, Any]]:
    """Return what the workers that are alive say of themselves."""
    workers = [worker for link in shards.all() for worker in _workers_of(link)]
    return sorted(workers, key=lambda worker: str(worker["role"]))


def _workers_of(link: Link) -> Iterator[dict[str, Any]]:
    keys, client = link.keys, link.client
    shown: Any = link.run(lambda: client.hgetall(keys.consumers))
    beats = [keys.heartbeat(name.decode()) for name in shown]
    alive: Any = link.run(lambda: client.mget(beats)) if beats else []
    for (name, said), beat in zip(shown.items(), alive, strict=True):
        if beat is not None:
            yield {"consumer": name.decode(), **json.loads(said)}


def _jobs(shards: Shards) -> list[JobStatus]:
    """Return the latest jobs that are still kept, the newest first."""
    jobs = [job for link in shards.all() for job in _jobs_of(link)]
    return sorted(jobs, key=lambda job: -(job.created_at or 0.0))[:_NUM_LISTED]


def _jobs_of(link: Link) -> Iterator[JobStatus]:
    ids: Any = link.run(lambda: link.client.zrevrange(link.keys.jobs, 0, _NUM_LISTED - 1))
    for job_id in ids:
        with contextlib.suppress(JobError):  # it has expired
            yield Job(link, job_id.decode()).status()


def _describe(status: JobStatus) -> str:
    counts = status.to_dict()
    names = ("succeeded", "failed", "cancelled", "expired", "running", "waiting")
    shown = ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name])
    number = counted(status.submitted, "document")
    return f"{status.job_id}  {status.state}: {number} ({shown or 'none'})"


def results(target: Target, job_id: str, output: Path | None, *, waits: bool, as_json: bool) -> int:
    """Write a job's results as they come; return 0, or 1 when documents have no answer."""
    began_at = time.monotonic()
    tally = Tally()
    skipped: Mapping[str, tuple[str, str | None]] = {}
    told_other = False
    with ExitStack() as stack:
        job = stack.enter_context(target.client()).job(job_id)
        file = None
        if output is not None:
            file = OutputFile(output)
            stack.callback(file.close)
            skipped = file.earlier.answered
        try:
            for result in job.results(timeout=None if waits else _AT_ONCE_S):
                if result.custom_id in skipped:
                    told_other = told_other or _tell_other_question(output, skipped, result)
                    continue
                tally.add(result)
                file.write(result) if file else write_record(result.to_json())
        except ResultTimeout:
            say(f"{job_id} is still running; this is what there is so far")
        final = job.status()
    told = (time.monotonic() - began_at, str(output or "standard output"), len(skipped))
    if as_json and output is not None:
        write_json(tally.to_dict(*told))
    else:
        say(_describe(final))
    return EXIT_OK if final.succeeded == final.submitted else EXIT_INCOMPLETE


def _tell_other_question(
    output: Path | None, answered: Mapping[str, tuple[str, str | None]], result: Result
) -> bool:
    """Tell that a file holds an answer to something else than this job asks, if it does."""
    asked_before = answered[result.custom_id][0]
    if asked_before in ("", result.spec):
        return False
    say(
        f"{output} holds answers to another prompt or other parameters for documents of this job "
        f"(first: {result.custom_id}); they are kept: choose another --output for this job's"
    )
    return True


def cancel(target: Target, job_id: str, custom_ids: list[str] | None, *, as_json: bool) -> int:
    """Take a job back, or single documents of it, and print how many documents that were."""
    with target.client() as client:
        job = client.job(job_id)
        count = job.cancel(custom_ids)
        status = job.status()
    if as_json:
        write_json({"cancelled_now": count, **status.to_dict()})
    elif custom_ids:
        write_line(f"{counted(count, 'document')} marked as cancelled; {_describe(status)}")
    else:
        write_line(f"{counted(count, 'waiting document')} cancelled; {_describe(status)}")
    return EXIT_OK


def pause(target: Target, job_id: str, *, is_paused: bool, as_json: bool) -> int:
    """Let a job rest, or go on, and print how far it is."""
    with target.client() as client:
        job = client.job(job_id)
        changed = job.pause() if is_paused else job.resume()
        status = job.status()
    if as_json:
        write_json({"changed": changed, **status.to_dict()})
    else:
        write_line(f"{'' if changed else 'nothing to do; '}{_describe(status)}")
    return EXIT_OK


def retry(target: Target, job_id: str, codes: list[str] | None, *, as_json: bool) -> int:
    """Run again what failed in a job; return 1 if not every failure could be put back."""
    with target.client() as client:
        job = client.job(job_id)
        report = job.retry(codes=codes or None)
        status = job.status()
    if as_json:
        write_json({**asdict(report), **status.to_dict()})
    else:
        write_line(f"{counted(report.put_back, 'document')} put back; {_describe(status)}")
        for line in _left(report):
            say(line)
    return EXIT_OK if report.is_complete else EXIT_INCOMPLETE


def _left(report: RetryReport) -> Iterator[str]:
    """Tell what could not be put back, and what to do."""
    if report.refused:
        yield (
            f"{counted(report.refused, 'document')} refused: nothing of them is kept; correct and "
            "submit them again, as another job"
        )
    if report.gone:
        yield f"{counted(report.gone, 'failure')} whose dead letters are gone; submit them again"
    if report.full:
        yield f"{counted(report.full, 'failure')} without room in the backlog; retry again later"
