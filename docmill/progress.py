"""How far a job is, shown to a person: a bar on a terminal, a plain line now and then elsewhere.

`Pace` is pure arithmetic on a clock that is passed in; the reporters print it on standard error.
rich is imported only when there is a terminal. May import nothing of docmill.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

#: Rates are those of the last so many seconds, because the first documents say little of the rest.
WINDOW_S = 30.0
#: Seconds below which a rate is chance.
MIN_SPAN_S = 1.0
#: Seconds between two plain lines.
LINE_EVERY_S = 5.0


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class Pace:
    """Rates and the time left, from moments at which so much was done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._moments: deque[tuple[float, int, int]] = deque()
        self._total: int | None = None

    def update(self, done: int, total: int | None, num_tokens: int = 0) -> None:
        """Note what is done now."""
        now = self._clock()
        self._total = total
        self._moments.append((now, done, num_tokens))
        while len(self._moments) > 2 and now - self._moments[1][0] > WINDOW_S:
            self._moments.popleft()

    def _rate(self, column: int) -> float:
        if len(self._moments) < 2:
            return 0.0
        first, last = self._moments[0], self._moments[-1]
        elapsed_s = last[0] - first[0]
        return (last[column] - first[column]) / elapsed_s if elapsed_s > 0 else 0.0

    @property
    def documents_per_s(self) -> float:
        """Documents a second, lately."""
        return self._rate(1)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, lately."""
        return self._rate(2)

    @property
    def left_s(self) -> float | None:
        """Seconds until everything is done at this pace; None while that cannot be told."""
        if self._total is None or self.documents_per_s <= 0:
            return None
        return (self._total - self._moments[-1][1]) / self.documents_per_s

    def describe(self) -> str:
        """Say the rates and the time left in a few words; nothing of a moment or two."""
        if not self._moments or self._moments[-1][0] - self._moments[0][0] < MIN_SPAN_S:
            return ""
        words = []
        if self.documents_per_s > 0:
            words.append(documents_per_s(self.documents_per_s))
        if self.tokens_per_s > 0:
            words.append(f"{self.tokens_per_s:,.0f} tokens/s")
        if self.left_s is not None:
            words.append(f"{duration(self.left_s)} left")
        return ", ".join(words)


def documents_per_s(rate: float) -> str:
    """Write a rate with as many digits as one can use."""
    return f"{rate:,.0f} documents/s" if rate >= 100 else f"{rate:.3g} documents/s"


def duration(seconds: float) -> str:
    """Write a duration for a person: 8 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


class _Counts(Protocol):
    """What a reporter reads off a job's status."""

    @property
    def done(self) -> int: ...

    @property
    def submitted(self) -> int: ...

    @property
    def failed(self) -> int: ...

    @property
    def is_paused(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Shown:
    """What there is to show."""

    done: int
    total: int | None
    num_failed: int
    parts: str
    pace: str


class Reporter:
    """Shows nothing; the base of those that do."""

    is_shown = False

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def update(
        self,
        done: int,
        total: int | None,
        *,
        num_tokens: int = 0,
        num_failed: int = 0,
        is_paused: bool = False,
        parts: str = "",
    ) -> None:
        """Take note of what is done.

        Args:
            done: Documents that are.
            total: Documents in all, if that is known.
            num_tokens: Prompt and output tokens so far.
            num_failed: Documents that are done but have no answer.
            is_paused: Whether nothing goes on.
            parts: What is done of documents that are not, in words.
        """
        self._pace.update(done, total, num_tokens)
        pace = "paused" if is_paused else self._pace.describe()
        self._show(_Shown(done, total, num_failed, parts, pace))

    def update_from(self, status: _Counts, parts: str = "") -> None:
        """Take note of a job's status, and of what is done of its documents that are not."""
        self.update(
            status.done,
            status.submitted,
            num_failed=status.failed,
            is_paused=status.is_paused,
            parts=parts,
        )

    def _show(self, shown: _Shown) -> None:
        """Show it, or do not."""

    def finish(self) -> None:
        """Show what has not been shown yet."""


class LineReporter(Reporter):
    """Prints a plain line every few seconds, and the last state at the end."""

    is_shown = True

    def __init__(self, pace: Pace, stream: TextIO, clock: Callable[[], float]) -> None:
        super().__init__(pace)
        self._stream = stream
        self._clock = clock
        self._due_at = clock() + LINE_EVERY_S
        self._line = ""
        self._has_begun = False

    def _show(self, shown: _Shown) -> None:
        done, total, pace = shown.done, shown.total, shown.pace
        of_total = f"/{total:,}" if total is not None else ""
        noun = "document" if (done if total is None else total) == 1 else "documents"
        parts = f", {shown.parts}" if shown.parts else ""
        failed = f", {shown.num_failed:,} failed" if shown.num_failed else ""
        self._line = f"{done:,}{of_total} {noun}{parts}{failed}{f' ({pace})' if pace else ''}"
        self._has_begun = done > 0
        if self._clock() >= self._due_at:
            self._print()

    def _print(self) -> None:
        print(self._line, file=self._stream, flush=True)
        self._due_at = self._clock() + LINE_EVERY_S
        self._line = ""

    def finish(self) -> None:
        """Print the last state unless it stands there already, or nothing was done."""
        if self._line and self._has_begun:
            self._print()


class BarReporter(Reporter):
    """Draws a bar that is redrawn in place."""

    is_shown = True

    def __init__(self, pace: Pace, bar: Any) -> None:
        super().__init__(pace)
        self._bar = bar
        self._task = bar.add_task("documents", total=None, pace="", failed="")

    def _show(self, shown: _Shown) -> None:
        failed = f"{shown.num_failed} failed" if shown.num_failed else ""
        pace = ", ".join(filter(None, (shown.parts, shown.pace)))
        self._bar.update(
            self._task, completed=shown.done, total=shown.total, pace=pace, failed=failed
        )


@contextmanager
def show_progress(
    *,
    is_shown: bool = True,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Reporter]:
    """Give a reporter that fits the stream: a bar, plain lines, or nothing at all.

    Args:
        is_shown: False gives a reporter that shows nothing.
        stream: Where to show it; standard error if not given.
        clock: Monotonic seconds.
    """
    stream = stream or sys.stderr
    pace = Pace(clock)
    if is_shown and stream.isatty():
        with _bar(stream) as bar:
            yield BarReporter(pace, bar)
        return
    reporter = LineReporter(pace, stream, clock) if is_shown else Reporter(pace)
    try:
        yield reporter
    finally:
        reporter.finish()


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[pace]}"),
        TextColumn("{task.fields[failed]}", style="red"),
        console=Console(file=stream),
        redirect_stdout=False,  # data may go there, and it may lead somewhere else
    )
