"""The fake engine's own knobs: delays, faults and waves. The contract suite covers the rest."""

import numpy as np

from docmill.errors import NonFiniteLogits
from engine.base import Capacity, Row, RowDone, RowFailed, Sampling
from engine.fake import FakeEngine, answer


def rows(count: int) -> list[Row]:
    """Build rows with different prompts."""
    return [
        Row(str(number), np.arange(number, number + 5, dtype=np.uint32), Sampling(32))
        for number in range(count)
    ]


def test_a_fault_fails_its_row_alone() -> None:
    """The error the hook returns becomes the event of that row and of no other."""
    error = NonFiniteLogits()
    engine = FakeEngine(fault=lambda row: error if row.row_id == "1" else None)

    events = list(engine.run(rows(3)))

    assert RowFailed("1", error) == events[1]
    assert [RowDone, RowFailed, RowDone] == [type(event) for event in events]


def test_delays_are_those_of_batches_and_of_the_longest_answer() -> None:
    """Rows of a wave share its delay and its steps; shorter answers end first."""
    slept: list[float] = []
    engine = FakeEngine(
        capacity=Capacity(1024, 2, 4096), token_delay_s=1.0, batch_delay_s=100.0, sleep=slept.append
    )

    events = [event for event in engine.run(rows(4)) if isinstance(event, RowDone)]

    waves = [events[:2], events[2:]]
    longest = sum(max(event.num_tokens for event in wave) for wave in waves)
    assert 200.0 + longest == sum(slept)
    assert all(wave[0].num_tokens <= wave[1].num_tokens for wave in waves)


def test_without_delays_a_wave_is_a_pass() -> None:
    """Whoever measures what is around an engine pays for one sign of life a wave."""
    asked: list[set[str]] = [set(), {"3"}]
    engine = FakeEngine(capacity=Capacity(1024, 2, 4096))

    events = list(engine.run(rows(4), step=lambda: asked.pop(0) if asked else set()))

    assert ["0", "1", "2"] == [event.row_id for event in events]
    assert asked == []


def test_a_stop_string_cuts_the_answer() -> None:
    """The text ends before the match, and the reason is `stop`."""
    [row] = rows(1)
    whole = answer(row).text
    second = whole.split()[1]

    cut = answer(Row(row.row_id, row.prompt, Sampling(32, stop=(second,))))

    assert (whole[: whole.index(second)], "stop") == (cut.text, cut.finish_reason)
