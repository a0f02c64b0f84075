"""What bench.preprocess and its parts share: the real tokenizer, submissions, one core, a clock.

Decides how work is timed: in processor time on one core, so that a neighbour costs less. Linux
only. May import docmill, preprocess and workers.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar

from docmill.request import build_spec
from docmill.wire import Header, Spec
from preprocess.base import Submission, Tokenizer, Verdict
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from workers import models
from workers import settings as configuration
from workers.preparation import load_tokenizer

P = ParamSpec("P")
T = TypeVar("T")

PROMPT = "Summarize the text in three sentences.\n\n{document}"
MAX_TOKENS = 64
#: As the worker reads them: documents, and bytes, prepared together.
_BATCH_DOCS, _BATCH_BYTES = 64, 1_000_000
_NOW = 1_800_000_000.0

#: Name of a figure -> what bench.report.figure returned.
Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Kit:
    """The small model's tokenizer, what is served, and what is asked: the client's defaults."""

    tokenizer: Tokenizer
    served: Served
    spec: Spec

    @classmethod
    def load(cls, **options: Any) -> Self:
        """Load the tokenizer. `options`: what is asked besides, by its public names."""
        settings = configuration.load()
        files = models.for_settings(settings)
        limit = settings.max_document_bytes
        served = Served(files.name, files.version, files.context_len, limit)
        spec = build_spec({"prompt": PROMPT, "max_tokens": MAX_TOKENS, **options})
        return cls(load_tokenizer(files), served, spec)

    def preprocessor(self) -> Preprocessor:
        """Return one that has prepared a document already, and so has rendered the prompt."""
        preprocessor = Preprocessor(self.tokenizer, self.served, clock=time.monotonic)
        self.prepare(preprocessor, self.submissions(["A document that warms up."]))
        return preprocessor

    def submissions(self, documents: Sequence[str]) -> list[Submission]:
        """Return documents as the worker gets them."""
        digest = self.spec.digest()
        return [
            Submission(
                Header(
                    request_id=f"r{number}",
                    job_id="bench",
                    custom_id=f"d{number}",
                    spec=digest,
                    submitted_at=_NOW,
                ),
                self.spec,
                document.encode(),
            )
            for number, document in enumerate(documents)
        ]

    def prepare(
        self, preprocessor: Preprocessor, submissions: Sequence[Submission]
    ) -> list[Verdict]:
        """Prepare submissions in batches as large as the worker's."""
        verdicts: list[Verdict] = []
        for first, end in batches([len(each.document) for each in submissions]):
            verdicts += preprocessor.prepare(submissions[first:end], _NOW)
        return verdicts


def batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of each batch of documents of so many bytes."""
    first = num_bytes = 0
    for at, size in enumerate(sizes):
        if at > first and (at - first == _BATCH_DOCS or num_bytes + size > _BATCH_BYTES):
            yield first, at
            first, num_bytes = at, 0
        num_bytes += size
    if first < len(sizes):
        yield first, len(sizes)


@contextmanager
def one_core() -> Iterator[None]:
    """Stay on one core until the block ends; threads that start in it do so for good.

    The tokenizer's thread pool starts with its first batch, and then has one thread.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def timed(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[float, T]:
    """Return the seconds of processor time that work took in all threads, and its outcome."""
    start = time.process_time()
    outcome = work(*args, **kwargs)
    return time.process_time() - start, outcome


def num_mb(documents: Sequence[str]) -> float:
    """Return the documents' size in megabytes of UTF-8."""
    return sum(len(document.encode()) for document in documents) / 1e6
