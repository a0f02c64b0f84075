"""`docmill run`: everything on this machine, from files to answers, and then an end.

Looks through the input before anything starts, skips what the output file has answers to, answers
the rest in one session of the service, and tells what came out. May import everything in docmill.
"""

import time
from contextlib import ExitStack
from pathlib import Path

from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from docmill.cli.input import count_left, look_through
from docmill.cli.output import say, write_json
from docmill.cli.resume import OutputFile
from docmill.cli.service_process import find_service
from docmill.cli.session import Outcome, Request, Run, tell_mixture
from docmill.client import DEFAULT_URL
from docmill.intake import Skipped
from docmill.link import Link
from docmill.progress import counted
from docmill.request import check_job_id, check_name
from docmill.tenant import check_tenant


def run(request: Request) -> int:
    """Answer the documents and return the exit status: 0, or 1 when some have no answer."""
    began_at = time.monotonic()
    _check(request)
    found = look_through(request.work)
    find_service()
    outcome = Outcome(found.count + found.num_problems)
    with ExitStack() as stack:
        output = None
        if request.output is not None:
            output = OutputFile(request.output)
            stack.callback(output.close)
        answered = output.earlier.answered if output else {}
        num_left = outcome.total
        if answered:
            num_left = count_left(request.work, answered, output=request.shown_output)
        outcome.skipped = outcome.total - num_left
        if outcome.skipped:
            say(
                f"skipped {counted(outcome.skipped, 'document')} with an answer in {request.output}"
            )
        if output and not num_left:
            tell_mixture(output, _named_model(request))
        if num_left:
            try:
                Run(request, answered, output, outcome).run()
            except KeyboardInterrupt:
                _tell_interrupted(request, outcome)
                return EXIT_INTERRUPTED
    _tell_summary(request, outcome, time.monotonic() - began_at, found.skipped)
    return EXIT_OK if outcome.tally.answered >= num_left else EXIT_INCOMPLETE


def _check(request: Request) -> None:
    """Refuse what the client or the service would refuse later, also where nothing is left to do.

    Raises:
        JobRejected: The job's id, its name or the tenant cannot be used.
        ConfigError: The Redis URL or the namespace cannot.
    """
    if request.job_id is not None:
        check_job_id(request.job_id)
    check_name(request.work.terms.get("name"))
    check_tenant(request.tenant)
    settings = request.settings
    Link(settings.get("redis_url") or DEFAULT_URL, settings["namespace"], 0.0).close()


def _named_model(request: Request) -> str | None:
    """Return what the model that was named is called where it is served, if one was."""
    model = request.settings.get("model")
    return Path(model).resolve().name if model and Path(model).is_dir() else model


def _tell_interrupted(request: Request, outcome: Outcome) -> None:
    answered = outcome.skipped + outcome.tally.answered
    how = "" if request.output is None else "; run the same command again to go on"
    say(
        f"interrupted: {answered:,} of {counted(outcome.total, 'document')} answered in "
        f"{request.shown_output}{how}"
    )


def _tell_summary(request: Request, outcome: Outcome, elapsed_s: float, skipped: Skipped) -> None:
    told = (elapsed_s, request.shown_output, outcome.skipped)
    if request.as_json:
        files = {"skipped_files": dict(skipped.by_suffix)}
        write_json(outcome.tally.to_dict(*told) | files)
        return
    for line in outcome.tally.lines(*told):
        say(line)
