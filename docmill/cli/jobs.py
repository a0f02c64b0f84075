"""`docmill results`, `pause`, `resume`, `cancel` and `retry`: what they do.

May import everything in docmill.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from docmill.cli import address
from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from docmill.cli.output import say, write_json, write_line, write_record
from docmill.cli.resume import OutputFile
from docmill.cli.summary import Tally, describe
from docmill.client import Client
from docmill.errors import ResultTimeout
from docmill.job import Job, RetryReport
from docmill.progress import counted
from docmill.results import Result
from docmill.retrying import failed_results
from docmill.shards import Shards

#: How long a read of results that are there already may take.
_AT_ONCE_S = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """The service that a command speaks to."""

    redis_url: str | None
    namespace: str | None
    state_dir: Path
    tenant: str = ""

    def client(self) -> Client:
        """Return a client whose Redis answers.

        Raises:
            ConfigError: No service is known.
            BrokerUnavailable: Its Redis cannot be reached.
        """
        client = Client(*self._address(), tenant=self.tenant)
        client.ping()
        return client

    def shards(self) -> Shards:
        """Return connections for what no client offers."""
        return Shards(*self._address(), reconnect_s=0.0)

    def _address(self) -> tuple[str, str]:
        return address.find(self.redis_url, self.namespace, self.state_dir.expanduser())


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
                if file is None:
                    write_record(result.to_json())
                    continue
                if said := file.mixture(result.model):
                    say(said)
                file.write(result)
        except ResultTimeout:
            say(f"{job_id} is {job.status().state}; this is what there is so far")
        except KeyboardInterrupt:
            where = "" if output is None else f" -o {output}"
            say(f"interrupted; the job goes on: 'docmill results {job_id}{where}' comes back to it")
            return EXIT_INTERRUPTED
        final = job.status()
    told = (time.monotonic() - began_at, str(output or "standard output"), len(skipped))
    if as_json and output is not None:
        write_json(tally.to_dict(*told))
    else:
        say(describe(final))
        for line in tally.failure_lines():
            say(line)
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
        unknown = job._unknown(custom_ids) if custom_ids else []
        before = job.status()
        count = job.cancel(custom_ids)
        status = job.status()
    if as_json:
        write_json({"cancelled_now": count, "unknown": unknown, **status.to_dict()})
    else:
        said = "the job has ended; nothing was cancelled"
        if not before.is_finished:
            said = _cancelled(count, custom_ids is not None)
        write_line(f"{said}; {describe(status)}")
        for custom_id in unknown:
            say(f"no such document in this job: {custom_id}")
    return EXIT_INCOMPLETE if unknown else EXIT_OK


def _cancelled(count: int, is_singly: bool) -> str:
    if not is_singly:
        return f"{counted(count, 'waiting document')} cancelled"
    if not count:
        return "nothing new was asked to be cancelled"
    verb = "was" if count == 1 else "were"
    return (
        f"{counted(count, 'document')} {verb} asked to be cancelled; those that are done keep "
        "their results"
    )


def pause(target: Target, job_id: str, *, is_paused: bool, as_json: bool) -> int:
    """Let a job rest, or go on, and print how far it is."""
    with target.client() as client:
        job = client.job(job_id)
        changed = job.pause() if is_paused else job.resume()
        status = job.status()
    if as_json:
        write_json({"changed": changed, **status.to_dict()})
    else:
        write_line(f"{'' if changed else 'nothing to do; '}{describe(status)}")
    return EXIT_OK


def retry(target: Target, job_id: str, codes: list[str] | None, *, as_json: bool) -> int:
    """Run again what failed in a job; return 1 if not every failure could be put back."""
    with target.client() as client:
        job = client.job(job_id)
        report = job.retry(codes=codes or None)
        status = job.status()
        is_unknown = bool(codes) and report == RetryReport()
        there = failures_of(job).failures if is_unknown else {}
    if as_json:
        write_json({**asdict(report), **status.to_dict()})
    else:
        write_line(f"{counted(report.put_back, 'document')} put back; {describe(status)}")
        for line in _left(report):
            say(line)
        if is_unknown:
            say(f"no failure of the job has such a code; there are: {', '.join(there) or 'none'}")
    return EXIT_OK if report.is_complete and not is_unknown else EXIT_INCOMPLETE


def failures_of(job: Job) -> Tally:
    """Read a job's results up to now and count those that failed."""
    tally = Tally()
    for result in failed_results(job._link, job.id):
        tally.add(result)
    return tally


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
