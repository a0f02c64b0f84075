"""`docmill submit`, `status`, `results` and `cancel`: jobs of a service that runs elsewhere.

May import everything in docmill.
"""

import json
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmill.cli import address
from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_OK
from docmill.cli.input import documents, look_through
from docmill.cli.output import counted, say, write_json, write_line
from docmill.cli.resume import OutputFile
from docmill.cli.summary import Tally
from docmill.client import Client
from docmill.errors import JobError, ResultTimeout
from docmill.job import Job, JobStatus
from docmill.link import Link

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

    def link(self) -> Link:
        """Return a connection for what no client offers."""
        return Link(*self._address(), reconnect_s=0.0)

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
    link = target.link()
    workers, jobs = _workers(link), _jobs(link)
    link.close()
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


def _workers(link: Link) -> list[dict[str, Any]]:
    """Return what the workers that are alive say of themselves."""
    keys, client = link.keys, link.client
    shown: Any = link.run(lambda: client.hgetall(keys.consumers))
    beats = [keys.heartbeat(name.decode()) for name in shown]
    alive: Any = link.run(lambda: client.mget(beats)) if beats else []
    workers = [
        {"consumer": name.decode(), **json.loads(said)}
        for (name, said), beat in zip(shown.items(), alive, strict=True)
        if beat is not None
    ]
    return sorted(workers, key=lambda worker: str(worker["role"]))


def _jobs(link: Link) -> list[JobStatus]:
    """Return the latest jobs that are still kept, the newest first."""
    ids: Any = link.run(lambda: link.client.zrevrange(link.keys.jobs, 0, _NUM_LISTED - 1))
    jobs = []
    for job_id in ids:
        try:
            jobs.append(Job(link, job_id.decode()).status())
        except JobError:
            continue  # it has expired
    return jobs


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
    skipped: Collection[str] = ()
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
                    continue
                tally.add(result)
                file.write(result) if file else write_line(result.to_json())
        except ResultTimeout:
            say(f"{job_id} is still running; this is what there is so far")
        final = job.status()
    told = (time.monotonic() - began_at, str(output or "standard output"), len(skipped))
    if as_json and output is not None:
        write_json(tally.to_dict(*told))
    else:
        say(_describe(final))
    return EXIT_OK if final.succeeded == final.submitted else EXIT_INCOMPLETE


def cancel(target: Target, job_id: str, *, as_json: bool) -> int:
    """Take back what waits in a job and print how many documents that were."""
    with target.client() as client:
        job = client.job(job_id)
        count = job.cancel()
        status = job.status()
    if as_json:
        write_json({"cancelled_now": count, **status.to_dict()})
    else:
        write_line(f"{counted(count, 'waiting document')} cancelled; {_describe(status)}")
    return EXIT_OK
