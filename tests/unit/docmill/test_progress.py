"""Progress: rates, time left, and how it is shown."""

import io
from typing import Any

import pytest

from docmill.progress import Pace, duration, show_progress


class Clock:
    """Monotonic seconds that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


def test_rates_are_those_of_late(clock: Clock) -> None:
    """What happened more than half a minute ago says little of what is left."""
    pace = Pace(clock)
    for done in (0, 100, *range(101, 161)):
        pace.update(done, 220, done * 10)
        clock.now_s += 1

    assert 1.0 == pytest.approx(pace.documents_per_s)
    assert 10.0 == pytest.approx(pace.tokens_per_s)
    assert 60.0 == pytest.approx(pace.left_s)


def test_nothing_is_foretold_without_progress(clock: Clock) -> None:
    """Before the first document is done there is no time left to tell."""
    pace = Pace(clock)
    pace.update(0, 10)
    clock.now_s += 5
    pace.update(0, 10)

    assert (0.0, None) == (pace.documents_per_s, pace.left_s)
    assert "" == pace.describe()


def test_no_rate_is_told_of_less_than_a_second(clock: Clock) -> None:
    """What was done within an instant says nothing."""
    pace = Pace(clock)
    for _ in range(3):
        pace.update(2, None)
        clock.now_s += 0.3

    assert "" == pace.describe()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(8.4, "8 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (59.9, "1 min 00 s")],
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    """Two units at most."""
    assert words == duration(seconds)


def test_plain_lines_come_now_and_then(clock: Clock) -> None:
    """Without a terminal: a line every five seconds and the last state, no control codes."""
    stream = io.StringIO()
    with show_progress(stream=stream, clock=clock) as reporter:
        for done in range(0, 13):
            reporter.update(done, 12, num_tokens=done * 100, num_failed=done // 12)
            clock.now_s += 1

    lines = stream.getvalue().splitlines()
    assert ["5/12", "10/12", "12/12"] == [line.split()[0] for line in lines]
    assert "5/12 documents (1 documents/s, 100 tokens/s, 7 s left)" == lines[0]
    assert "1 failed" in lines[-1]
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_bar(clock: Clock) -> None:
    """The bar shows counts, rates and failures."""
    stream = Terminal()
    with show_progress(stream=stream, clock=clock) as reporter:
        reporter.update(0, 4)
        clock.now_s += 2
        reporter.update(4, 4, num_failed=1)

    assert "4/4" in stream.getvalue()
    assert "2 documents/s" in stream.getvalue()
    assert "1 failed" in stream.getvalue()


def test_parts_are_told_between_documents(clock: Clock) -> None:
    """Where documents are answered in parts, those show that it goes on: as a line and as a bar."""
    streams = [io.StringIO(), Terminal()]
    for stream in streams:
        with show_progress(stream=stream, clock=clock) as reporter:
            reporter.update(1, 2, num_failed=1, parts="3/5 parts of 1 document")

    assert "1/2 documents, 3/5 parts of 1 document, 1 failed\n" == streams[0].getvalue()
    assert "3/5 parts of 1 document" in streams[1].getvalue()


def test_a_pause_is_told_instead_of_a_rate(clock: Clock) -> None:
    """A job that rests has no pace and no time left."""
    stream = io.StringIO()
    with show_progress(stream=stream, clock=clock) as reporter:
        for done in (1, 2):
            reporter.update(done, 4, is_paused=done == 2)
            clock.now_s += 1

    assert "2/4 documents (paused)" in stream.getvalue()


def test_nothing_is_shown_unless_wanted(clock: Clock) -> None:
    """A quiet caller stays quiet."""
    stream: Any = Terminal()
    with show_progress(is_shown=False, stream=stream, clock=clock) as reporter:
        reporter.update(1, 2)

    assert "" == stream.getvalue()


def test_nothing_is_said_of_nothing(clock: Clock) -> None:
    """What fails before its first document leaves no line; one document is not told as several."""
    streams = [io.StringIO(), io.StringIO()]
    for stream, done in zip(streams, (0, 1), strict=True):
        with show_progress(stream=stream, clock=clock) as reporter:
            reporter.update(done, None)

    assert ["", "1 document\n"] == [stream.getvalue() for stream in streams]
