"""Guesses at a row's next tokens, right or wrong, change no answer.

Whether guessing pays is measured while a batch runs; here every guess is taken, so that what is
tested does not depend on the machine.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.base import Row, Sampling
from engine.speculation import Prospect
from tests.support.exactness import (
    Subject,
    leaving_at,
    make_prompt,
    run,
    subject,
    waiting_list,
)

#: One of each way in which several new tokens of a row are attended: with and without a window,
#: by tokens that choose experts, with sinks, with capped scores, over rows the model makes itself.
#: Models that keep a state do not draft.
ATTENDED = ("llama", "mistral", "qwen3_moe", "gpt_oss", "gemma2", "deepseek_v3")

NARROW: dict[str, Any] = {"max_rows": 3, "refill_share": 0.0, "chunk_tokens": 13}


@pytest.fixture(params=ATTENDED)
def model(request: pytest.FixtureRequest) -> Subject:
    """Each of them in turn."""
    return subject(request.param)


@pytest.fixture(autouse=True)
def every_guess_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draft whatever has been said before, from the first answer token on."""

    def all_of_them(prospects: Sequence[Prospect], *args: Any, **kwargs: Any) -> list[int]:
        return [each.num_drafts for each in prospects]

    monkeypatch.setattr("engine.speculation.plan_drafts", all_of_them)
    monkeypatch.setattr("engine.speculation._LEAST_PASSES", 0)


def repeating_rows(model: Subject) -> list[Row]:
    """Return rows that invite guesses: right ones, wrong ones, and some past the answer's end."""
    start = make_prompt("start", 7)
    [said] = model.generated([Row("said", start, Sampling(12))]).values()
    answer = np.array(said, dtype=np.uint32)
    again = np.concatenate([start, answer, start])
    return [
        # each follows what the model says to `start`, or goes round in circles
        Row("repeats", np.tile(start, 5), Sampling(16)),
        Row("has said it before", again, Sampling(9)),
        Row("its own words", np.concatenate([again, answer[:3]]), Sampling(5)),
        Row("one token", np.tile(start, 3), Sampling(1)),
        Row("two tokens", np.tile(start, 4), Sampling(2)),
        Row("one word", np.full(20, 9, np.uint32), Sampling(16)),
        Row("no repeats", make_prompt("other", 30), Sampling(7)),
        Row("drawn", np.tile(start, 5), Sampling(8, temperature=1.0, top_p=0.9, seed=1)),
        Row("drawn cold", np.tile(start, 5), Sampling(8, temperature=0.2, seed=2)),
    ]


def unguessed(model: Subject, rows: Sequence[Row]) -> dict[str, tuple[int, ...]]:
    """Return what each row says alone and without a guess."""
    engine = model.engine(max_drafts=0)
    return {key: tokens for row in rows for key, tokens in run(engine, [row]).items()}


def test_guesses_change_no_answer(model: Subject) -> None:
    """With guesses, together and alone, rows say what transformers' `generate` says without."""
    rows = repeating_rows(model)
    greedy = [row for row in rows if not row.sampling.temperature]
    expected = unguessed(model, rows)

    assert model.generated(greedy) == {row.row_id: expected[row.row_id] for row in greedy}
    assert expected == run(model.engine(), rows)
    assert expected == {
        key: said for row in rows for key, said in run(model.engine(), [row]).items()
    }


def test_guesses_of_rows_that_join_and_leave_change_no_answer(model: Subject) -> None:
    """Rows that guess are joined in mid-guess and called off in mid-guess without a trace."""
    rows = repeating_rows(model)
    expected = unguessed(model, rows)
    leaving = {4: {"repeats"}, 7: {"its own words", "no repeats"}}

    joined = run(model.engine(**NARROW), rows[:2], waiting_list(rows[2:]))
    left = run(model.engine(**NARROW), rows, step=leaving_at(leaving))

    assert expected == joined
    assert {row_id: expected[row_id] for row_id in left} == left


def test_guesses_are_made_and_accepted() -> None:
    """Where a model goes round in circles, an answer takes fewer passes than it has tokens."""
    model = subject("deepseek_v3")
    row = Row("circles", np.tile(make_prompt("x", 7), 5), Sampling(40))
    passes = 0

    def step() -> tuple[str, ...]:
        nonlocal passes
        passes += 1
        return ()

    answers = run(model.engine(), [row], step=step)

    assert model.generated([row]) == answers
    assert passes < len(answers["circles"])
