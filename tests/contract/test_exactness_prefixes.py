"""Rows that begin alike answer as each does alone, however much of the beginning is shared.

The hint `prefix_len` says what may be shared and decides no answer: the rows here give right, late,
early and wrong ones.
"""

from typing import Any

import pytest

from engine.base import Row, RowDone, Sampling
from tests.support.exactness import (
    LONG,
    SHORT,
    Subject,
    leaving_at,
    make_prompt,
    run,
    sharing_rows,
    subject,
    waiting_list,
)
from tests.support.tiny_models import ARCHITECTURES

NARROW: dict[str, Any] = {"max_rows": 3, "refill_share": 0.0, "chunk_tokens": 20}


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> Subject:
    """Each architecture in turn."""
    return subject(request.param)


def test_rows_that_share_a_prefix_answer_as_alone(model: Subject) -> None:
    """In one batch, in either order, whole, and cut inside the prefix."""
    rows = sharing_rows()
    expected = model.alone(rows)

    assert expected == run(model.engine(), rows)
    assert expected == run(model.engine(), rows[::-1])
    assert expected == run(model.engine(chunk_tokens=20), rows)


def test_what_rows_share_is_computed_once(model: Subject) -> None:
    """One row computes the part that all share, one the rest of the prefix; others take it over."""
    rows = sharing_rows()
    cached: dict[str, int] = {}
    for event in model.engine().run(rows):
        assert isinstance(event, RowDone), event
        cached[event.row_id] = event.num_cached_tokens
    assert 0 == cached.pop("nothing shared")

    parts, whole = {row.row_id for row in rows if "a part" in row.row_id}, LONG - 1
    assert [0] == [count for count in cached.values() if count < SHORT]
    assert 1 == sum(count < whole for row_id, count in cached.items() if row_id not in parts)


def test_rows_that_join_the_holders_of_their_prefix_answer_as_alone(model: Subject) -> None:
    """A prefix that running rows hold, or held until just now, is joined without a trace."""
    rows = sharing_rows()

    answers = run(model.engine(**NARROW), rows[:2], waiting_list(rows[2:]))

    assert model.alone(rows) == answers


@pytest.mark.parametrize("when", [1, 2, 4])
def test_a_prefix_outlives_the_row_that_computed_it(model: Subject, when: int) -> None:
    """The first holder is called off before, during or after the prefix; the others go on."""
    rows = [row for row in sharing_rows() if row.row_id != "first"]
    leaving = {"last", "longer"}
    expected = model.alone(rows)

    answers = run(model.engine(chunk_tokens=40), rows, step=leaving_at({when: leaving}))

    assert {row.row_id for row in rows} - leaving <= answers.keys()
    assert {row_id: expected[row_id] for row_id in answers} == answers


def test_equal_prompts_in_every_slot_answer_alike(model: Subject) -> None:
    """A batch of nothing but repeats is answered like the one row it is."""
    prompt = make_prompt("equal", 40)
    rows = [Row(f"r{index}", prompt, Sampling(4 + index % 3)) for index in range(6)]

    answers = run(model.engine(), rows)

    assert model.alone(rows) == answers
