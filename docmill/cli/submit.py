"""`docmill submit`: documents into a job of a running service.

May import everything in docmill.
"""

from dataclasses import replace

from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from docmill.cli.input import Work, documents, look_through
from docmill.cli.jobs import Target, failures_of
from docmill.cli.output import say, write_json, write_line
from docmill.cli.overview import workers_of
from docmill.cli.summary import describe
from docmill.client import Client
from docmill.job import Job
from docmill.progress import counted
from docmill.submission import Counts


def submit(target: Target, work: Work, *, waits: bool, as_json: bool) -> int:
    """Submit documents as one job and print its id.

    Args:
        target: The service.
        work: The documents, and what is asked about them.
        waits: Whether to wait for the job's end.
        as_json: Whether to tell it to a program.
    """
    found = look_through(work)
    sending = _Sending(is_told=not as_json)
    with target.client() as client:
        _warn_without_workers(target)
        try:
            job = sending.send(client, work)
            status = job.wait() if waits else job.status()
        except KeyboardInterrupt:
            sending.tell_interrupted()
            return EXIT_INTERRUPTED
        failures = failures_of(job).failure_lines() if waits and status.failed else []
    if as_json:
        write_json(status.to_dict() | {"skipped_files": dict(found.skipped.by_suffix)})
    else:
        write_line(job.id)
        before = sending.counts.seen
        new = f"{sending.counts.total - before:,} new, {before:,} already there; " if before else ""
        say(f"{new}{describe(status)}; 'docmill results {job.id} -o FILE' writes the answers")
        for line in failures:
            say(line)
    return EXIT_INCOMPLETE if waits and status.succeeded < status.submitted else EXIT_OK


class _Sending:
    """How far a submission is; kept outside of it, so that an interrupt can still tell."""

    def __init__(self, *, is_told: bool) -> None:
        self.counts = Counts()
        self._is_told = is_told
        self._job_id = ""
        self._is_sent = False

    def send(self, client: Client, work: Work) -> Job:
        job = client.submit(
            documents(work),
            progress=True,
            on_open=self._note_job,
            on_progress=self._note_counts,
            **work.options,
            **work.terms,
        )
        self._is_sent = True
        return job

    def _note_job(self, job: Job) -> None:
        self._job_id = job.id
        if self._is_told:
            say(f"job {job.id} opened")

    def _note_counts(self, counts: Counts) -> None:
        self.counts = replace(counts)

    def tell_interrupted(self) -> None:
        job_id, sent = self._job_id, counted(self.counts.total, "document")
        if self._is_sent:
            say(f"interrupted; the job goes on: 'docmill results {job_id}' comes back to it")
        elif job_id:
            say(f"interrupted: {sent} sent; repeat with --job-id {job_id} to go on")
        else:
            say("interrupted: nothing was sent")


def _warn_without_workers(target: Target) -> None:
    shards = target.shards()
    if not workers_of(shards):
        say("no worker is running; the job waits until one is started")
    shards.close()
