"""A client of the service that may be killed at any time and is then run again from the start.

`python -m tests.chaos.customer URL NAMESPACE FOLDER PILE…`: submits its pile under a fixed job id,
reads the results to the end of the job, lets run again what failed for no fault of its own, and
notes in FOLDER what it saw in the end, in one step. Ends with `EXIT_AGAIN` when Redis is not there,
to be run again as well.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from docmill import Client, Job
from docmill.errors import BrokerUnavailable, JobCancelled, ResultTimeout
from docmill.results import Result
from tests.chaos.piles import Pile

#: EX_TEMPFAIL: Redis was away for too long for a client that has only just come.
EXIT_AGAIN = 75
#: Longer than any outage that the storm makes.
_PATIENCE_S = 60.0
#: How long a paused job must be silent before its customer lets it go on.
_PAUSE_S = 1.0
PROMPT = "Say a few words: {document}"


def main(arguments: list[str]) -> int:
    """Submit, read, note; return the exit status."""
    url, namespace, folder, *told = arguments
    pile = Pile.told(told)
    try:
        with Client(url, namespace) as client:
            job = _submit(client, pile)
            seen = _follow(job, pile)
            while pile.temper == "harsh" and _runs_again(job):
                seen = _follow(job, pile)
    except (BrokerUnavailable, ResultTimeout) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_AGAIN
    note = Path(folder) / f"{pile.job_id}.part"
    note.write_text(json.dumps(seen))
    note.rename(note.with_suffix(".json"))
    return 0


def _submit(client: Client, pile: Pile) -> Job:
    """Submit the pile, which comes back to its job if an earlier life has submitted it."""
    try:
        return client.submit(
            pile.submission(),
            prompt=PROMPT,
            max_tokens=32,
            truncate="split",
            tier=pile.tier,
            job_id=pile.job_id,
        )
    except JobCancelled:  # by an earlier life of this customer
        return client.job(pile.job_id)


def _runs_again(job: Job) -> bool:
    """Let run again what was given up; False if nothing was."""
    report = job.retry()
    if report.gone:
        raise AssertionError(f"{job.id}: {report}")
    return bool(report.put_back or report.full)


def _follow(job: Job, pile: Pile) -> list[tuple[str, str, str | None]]:
    """Read all results, and do in between what the pile's customer is given to."""
    if pile.whim == "pauses":
        job.pause()
    seen: list[tuple[str, str, str | None]] = []
    for result in _results(job, pile):
        seen.append((result.custom_id, result.outcome, result.text))
        if len(seen) == 1 and pile.whim == "cancels":
            job.cancel()
        if len(seen) == 1 and pile.whim == "picks":
            job.cancel(pile.picked)
    return seen


def _results(job: Job, pile: Pile) -> Iterator[Result]:
    """Yield the job's results; a pause ends when nothing more comes in spite of it."""
    after = None
    if pile.whim == "pauses":
        try:
            for result in job.results(timeout=_PAUSE_S):
                after = result.cursor
                yield result
        except ResultTimeout:
            job.resume()
    yield from job.results(timeout=_PATIENCE_S, after=after)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
