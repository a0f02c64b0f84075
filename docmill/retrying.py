"""Retry what failed in a job, and account for what cannot be retried.

Decides which failures these are; `docmill.dead` puts them back. May import docmill.dead and
docmill.cursor.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from docmill.cursor import results_of
from docmill.dead import DeadLetters
from docmill.link import Link
from docmill.results import Result

#: Results looked through at once.
_PAGE_RESULTS = 256


@dataclass(frozen=True, slots=True)
class RetryReport:
    """What became of a job's failures; each is counted once.

    Args:
        put_back: They run again.
        refused: Refused documents, of which nothing is kept: submit them again.
        gone: What was kept of them is not there any more: retried or dropped meanwhile, or too old.
        full: The backlog had no room for them; retry again when documents have been answered.
    """

    put_back: int = 0
    refused: int = 0
    gone: int = 0
    full: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every failure was put back."""
        return not (self.refused or self.gone or self.full)


def retry_failed(link: Link, job_id: str, codes: Collection[str], num_failed: int) -> RetryReport:
    """Put back every failure of a job that a dead letter was kept of.

    Args:
        link: Where the job is.
        job_id: The job.
        codes: Only failures with these error codes; empty means all.
        num_failed: How many documents of the job have failed.
    """
    letters = DeadLetters(link)
    num_kept, ids = 0, []
    for letter in letters.list(job=job_id):
        num_kept += 1
        if not codes or letter.code in codes:
            ids.append(letter.id)
    refused = lost = 0
    if num_failed > num_kept:
        failures = Counter(
            result.shared == "rejected"
            for result in failed_results(link, job_id)
            if not codes or (result.error and result.error.code in codes)
        )
        refused, lost = failures[True], max(0, failures[False] - len(ids))
    said = Counter(letters.retry(ids).values())
    gone = lost + said["gone"] + said["expired"] + said["malformed"]
    return RetryReport(put_back=said["ok"], refused=refused, gone=gone, full=said["full"])


def failed_results(link: Link, job_id: str) -> Iterator[Result]:
    """Yield a job's failed results that there are now. Cost: Reads all of its results."""
    key, start = link.keys.results(job_id), b"-"
    while page := _page(link, key, start):
        for result in results_of(link, job_id, page):
            if result.outcome == "failed":
                yield result
        start = b"(" + page[-1][0]


def _page(link: Link, key: str, start: bytes) -> Any:
    return link.run(lambda: link.client.xrange(key, min=start, count=_PAGE_RESULTS))
