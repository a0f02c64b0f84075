"""Every architecture answers the same whatever runs beside a row, in fp32 token for token.

A greedy answer is what transformers' own `generate` says to the prompt alone; a sampled one is what
the row's seed says. How rows are batched, ordered, cut, joined and let go changes neither.
"""

from typing import Any

import numpy as np
import pytest

from engine.base import Row, Sampling
from tests.support.exactness import (
    Subject,
    leaving_at,
    make_prompt,
    make_rows,
    run,
    subject,
    waiting_list,
)
from tests.support.tiny_model import CONTEXT_LEN
from tests.support.tiny_models import ARCHITECTURES

#: Passes over 13 tokens cut most prompts, at places of no meaning to any model.
CHUNKED: dict[str, Any] = {"chunk_tokens": 13}
#: Rows join as soon as one has left.
NARROW: dict[str, Any] = {"max_rows": 3, "refill_share": 0.0}

#: Ends answers too, as in many tokenizers.
PAD_ID = 1

SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9}


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> Subject:
    """Each architecture in turn."""
    return subject(request.param)


def test_a_batch_answers_as_generate_does_one_by_one(model: Subject) -> None:
    """Rows of mixed lengths in one batch, each row alone, and transformers agree."""
    rows = make_rows()
    expected = model.generated(rows)

    assert expected == model.alone(rows)
    assert expected == run(model.engine(), rows)


def test_order_changes_no_answer(model: Subject) -> None:
    """Shuffled rows are answered like ordered ones."""
    rows = make_rows()
    order = np.random.default_rng(0).permutation(len(rows))

    assert model.alone(rows) == run(model.engine(), [rows[index] for index in order])


def test_chunks_change_no_answer(model: Subject) -> None:
    """Prompts computed a few tokens at a time are answered like whole ones."""
    rows = make_rows()

    assert model.alone(rows) == run(model.engine(**CHUNKED), rows)


def test_chunks_of_one_token_change_no_answer(model: Subject) -> None:
    """The least that a pass can compute is enough."""
    rows = make_rows((3, 17, 1, 5))

    assert model.alone(rows) == run(model.engine(chunk_tokens=1), rows)


@pytest.mark.parametrize(
    "limits",
    [{"max_rows": 4, "refill_share": 1.0}, NARROW | CHUNKED, {"max_batch_tokens": 150}],
    ids=["waves", "narrow", "few tokens"],
)
def test_limits_change_no_answer(model: Subject, limits: dict[str, Any]) -> None:
    """In waves, as slots get free, or as tokens allow: every row says the same."""
    rows = make_rows()

    assert model.alone(rows) == run(model.engine(**limits), rows)


def test_rows_that_join_a_running_batch_answer_as_alone(model: Subject) -> None:
    """Nobody notices a row that joins in mid-answer, and it notices nobody."""
    rows = make_rows()

    answers = run(model.engine(**NARROW), rows[:2], waiting_list(rows[2:]))

    assert model.alone(rows) == answers


@pytest.mark.parametrize(
    ("first", "limits"), [(1, {}), (3, {"max_rows": 4}), (4, NARROW | CHUNKED)], ids=str
)
def test_rows_that_are_let_go_leave_no_trace(
    model: Subject, first: int, limits: dict[str, Any]
) -> None:
    """Rows called off before any pass, in mid-prompt or in mid-answer, change no other answer."""
    rows = make_rows()
    leaving = {first: {"r0", "r8"}, first + 3: {"r3", "r5"}}
    kept = {row.row_id for row in rows} - {"r0", "r3", "r5", "r8"}
    expected = model.alone(rows)

    answers = run(model.engine(**limits), rows[:4], waiting_list(rows[4:]), leaving_at(leaving))

    assert kept <= answers.keys()  # the others may have ended before they were called off
    assert {row_id: expected[row_id] for row_id in answers} == answers


def test_sampled_answers_depend_on_their_seed_alone(model: Subject) -> None:
    """A seeded row draws the same tokens alone, in any batch and beside greedy rows."""
    rows = [
        Row(row.row_id, row.prompt, Sampling(row.sampling.max_tokens, **SAMPLED, seed=index))
        for index, row in enumerate(make_rows())
    ]
    greedy = [Row(f"greedy-{row.row_id}", row.prompt, row.sampling) for row in make_rows()[::2]]
    expected = model.alone([*rows, *greedy])

    assert expected == run(model.engine(), [*rows, *greedy])
    assert expected == run(model.engine(**NARROW | CHUNKED), [*greedy, *rows[::-1]])


def test_a_seed_decides_which_answer_is_drawn(model: Subject) -> None:
    """The same prompt with other seeds has other answers, each its own whatever the batch."""
    prompt = make_prompt("seeds", 40)
    rows = [Row(f"s{seed}", prompt, Sampling(8, **SAMPLED, seed=seed)) for seed in range(5)]
    again = Row("again", prompt, Sampling(8, **SAMPLED, seed=0))

    answers = run(model.engine(), [*rows, again])

    assert answers["s0"] == answers["again"]
    assert len(rows) == len(set(answers.values()))
    assert model.alone([*rows, again]) == answers


def test_answers_end_with_the_context(model: Subject) -> None:
    """Rows that fill the context to its last token answer as alone, beside short ones."""
    rows = [
        Row("full", make_prompt("full", CONTEXT_LEN - 1), Sampling(1)),
        Row("fills", make_prompt("fills", CONTEXT_LEN - 6), Sampling(6)),
        Row("one", make_prompt("one", 1), Sampling(1)),
        Row("short", make_prompt("short", 4), Sampling(9)),
    ]

    assert model.generated(rows) == run(model.engine(), rows)
    assert model.generated(rows) == run(model.engine(chunk_tokens=100), rows)


def test_a_token_that_pads_is_a_token_like_any_other(model: Subject) -> None:
    """Prompts that begin, go on or end with the token that pads and ends answers are read whole."""
    pad = np.full(3, PAD_ID, np.uint32)
    prompt = make_prompt("pad", 20)
    prompts = {
        "begins": np.concatenate([pad, prompt]),
        "ends": np.concatenate([prompt, pad]),
        "nothing else": pad,
        "without": prompt,
    }
    rows = [Row(name, ids, Sampling(6)) for name, ids in prompts.items()]

    assert model.generated(rows) == run(model.engine(), rows)
