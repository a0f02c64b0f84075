"""What a run or a job came to, counted and told in a few lines.

Pure: no clock and no I/O of its own. May import docmill.results, docmill.status and
docmill.cli.findings.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from docmill.cli.findings import FindingCounts
from docmill.progress import counted, documents_per_s, duration
from docmill.results import Result, about
from docmill.status import JobStatus


def describe(status: JobStatus) -> str:
    """Tell a job's counts in a line."""
    counts = status.to_dict()
    names = ("succeeded", "failed", "cancelled", "expired", "running", "waiting")
    shown = ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name])
    number = counted(status.submitted, "document")
    return f"{status.job_id}  {status.state}: {number} ({shown or 'none'})"


@dataclass(slots=True)
class Tally:
    """Counts over results; tokens are counted where they were computed, so once per repeat.

    Of a document that was split, those of all its parts count. Repeats were answered from the
    answer to another document, `near_duplicates` of them from one that is only almost equal;
    `saved_tokens` are the prompt tokens of those answers. `alike` counts documents that are almost
    equal to an earlier one and were answered all the same.
    """

    answered: int = 0
    failed: int = 0
    other: int = 0
    repeats: int = 0
    near_duplicates: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    saved_tokens: int = 0
    truncated: int = 0
    cut_tokens: int = 0
    split: int = 0
    parts: int = 0
    alike: int = 0
    findings: FindingCounts = field(default_factory=FindingCounts)
    #: Error code -> how often, and the first message.
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: Custom id -> error code of those that failed: a later result replaces a failure.
    _failed: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def done(self) -> int:
        """Results so far."""
        return self.answered + self.failed + self.other

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens that were answered for, repeats excluded."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, result: Result) -> None:
        """Count one result; of a document that was retried, the last one counts."""
        self._take_back(result.custom_id)
        if result.ok:
            self.answered += 1
        elif result.outcome == "failed":
            self.failed += 1
        else:
            self.other += 1
        if result.error is not None:
            count, first = self.failures.get(result.error.code, (0, ""))
            message = first or about(result.custom_id, result.error.message)
            self.failures[result.error.code] = (count + 1, message)
            if result.outcome == "failed":
                self._failed[result.custom_id] = sys.intern(result.error.code)
        self._add_report(result)
        if result.shared in ("follower", "cached"):
            self.repeats += 1
            self.near_duplicates += _takes_over(result)
            self.saved_tokens += result.usage.prompt_tokens
            return
        # of a document in parts the usage is that of the pass that made one answer of theirs
        spent = (result.usage, result.division) if result.division else (result.usage,)
        self.prompt_tokens += sum(each.prompt_tokens for each in spent)
        self.completion_tokens += sum(each.completion_tokens for each in spent)
        self.cached_tokens += result.usage.cached_tokens

    def _add_report(self, result: Result) -> None:
        if cut := result.truncation:
            self.truncated += 1
            self.cut_tokens += cut.original_tokens - cut.kept_tokens
        if result.division:
            self.split += 1
            self.parts += result.division.parts
        # a service of before knew warnings only, and only flagged
        found = [(each.rule, each.action) for each in result.findings]
        self.findings.add(found or [(rule, "flag") for rule in result.warnings])
        self.alike += result.near is not None and not _takes_over(result)

    def _take_back(self, custom_id: str) -> None:
        code = self._failed.pop(custom_id, None)
        if code is None:
            return
        self.failed -= 1
        count, first = self.failures.pop(code)
        if count > 1:
            self.failures[code] = (count - 1, first)

    def lines(self, elapsed_s: float, output: str, skipped: int) -> list[str]:
        """Tell a person what came out."""
        words = [f"{self.answered:,} answered", f"{self.failed:,} failed"]
        if self.other:
            words.append(f"{self.other:,} cancelled or expired")
        if skipped:
            words.append(f"{skipped:,} answered before")
        documents, where = f"documents   {', '.join(words)}", f"output      {output}"
        if not self.done:
            return [documents, where]
        return [
            documents,
            *self._report_lines(),
            f"tokens      {self.prompt_tokens:,} in, {self.completion_tokens:,} out",
            f"time        {duration(elapsed_s)} "
            f"({documents_per_s(self.done / max(elapsed_s, 1e-9))}, start included)",
            where,
            *self.failure_lines(),
        ]

    def _report_lines(self) -> Iterator[str]:
        """Tell a person what became of documents, as far as there is something to tell."""
        if self.truncated:
            cut = counted(self.cut_tokens, "token")
            yield f"truncated   {counted(self.truncated, 'document')} longer than fits, {cut} cut"
        if self.split:
            parts = counted(self.parts, "part")
            yield f"split       {counted(self.split, 'document')} answered in {parts}"
        yield from self.findings.lines()
        if self.repeats or self.cached_tokens:
            repeats = "a repeat" if self.repeats == 1 else "repeats"
            near = counted(self.near_duplicates, "near duplicate")
            yield (
                f"cache hits  {counted(self.repeats, 'document')} answered as {repeats}"
                f"{f' ({near})' if self.near_duplicates else ''}, "
                f"{counted(self.saved_tokens + self.cached_tokens, 'prompt token')} not computed "
                "again"
            )
        if self.alike:
            yield alike_line(self.alike)

    def failure_lines(self) -> list[str]:
        """Tell a person what failed: each error code, how often, and the first of it."""
        return [
            f"{count:,} x {code}, first: {first}" for code, (count, first) in self.failures.items()
        ]

    def to_dict(self, elapsed_s: float, output: str, skipped: int) -> dict[str, Any]:
        """Tell a program the same."""
        return {
            "answered": self.answered,
            "failed": self.failed,
            "other": self.other,
            "answered_before": skipped,
            "repeats": self.repeats,
            "near_duplicates": self.near_duplicates,
            "saved_tokens": self.saved_tokens,
            "truncated": self.truncated,
            "cut_tokens": self.cut_tokens,
            "split": self.split,
            "parts": self.parts,
            **self.findings.to_dict(),
            "alike": self.alike,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "seconds": round(elapsed_s, 3),
            "errors": {code: count for code, (count, _) in self.failures.items()},
            "output": output,
        }


def alike_line(count: int) -> str:
    """Tell a person of documents that are almost equal to another and do not share its answer."""
    return f"alike       {counted(count, 'document')} almost equal to another, answered by itself"


def _takes_over(result: Result) -> bool:
    """Whether the answer is that of an almost equal document."""
    near = result.near
    return near is not None and near.is_reused and result.shared in ("follower", "cached")
