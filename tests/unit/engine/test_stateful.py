"""Answers of stateful models: what they are, and that nothing else changes them."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from docmill.errors import DeviceOutOfMemory, EngineFault, NonFiniteLogits
from engine.base import Row, RowFailed, Sampling
from tests.support.stateful import (
    FEW,
    LENGTHS,
    Served,
    rows,
    said,
    watch,
)


def test_rows_of_mixed_lengths_say_what_generate_says(served: Served) -> None:
    """Token for token, with lengths around the windows that are compressed."""
    batch = rows(LENGTHS)

    assert served.expected(batch) == served.tokens(batch)


@pytest.mark.parametrize(
    "limits",
    [
        {"chunk_tokens": 3},
        {"chunk_tokens": 16},
        {"max_rows": 1},
        {"max_rows": 3, "refill_share": 0.0},
        {"max_rows": 3, "refill_share": 1.0},
        {"max_batch_tokens": 100},
    ],
    ids=str,
)
def test_limits_and_order_change_no_answer(served: Served, limits: dict[str, Any]) -> None:
    """Cut anywhere, alone, in waves or as places get free, backwards: every row says the same."""
    batch = rows(FEW)

    assert served.expected(batch) == served.tokens(batch[::-1], **limits)


@pytest.mark.parametrize("when", range(1, 9))
def test_a_row_that_leaves_changes_no_other(served: Served, when: int) -> None:
    """Whichever pass it leaves before, in its prompt or in its answer, it has no event."""
    first, leaver, *others = rows(FEW)
    calls = 0

    def step() -> Collection[str]:
        nonlocal calls
        calls += 1
        return [leaver.row_id] if calls == when else []

    answers = served.tokens([first, leaver, *others], None, step, chunk_tokens=12)

    answers.pop(leaver.row_id, None)
    assert served.expected([first, *others]) == answers


@pytest.mark.parametrize("when", range(6))
def test_a_row_that_joins_changes_no_other(served: Served, when: int) -> None:
    """Whenever it comes, each says what it says alone."""
    *batch, late = rows(FEW)
    arrivals: Iterator[list[Row]] = iter([[] for _ in range(when)] + [[late]])

    answers = served.tokens(batch, lambda _: next(arrivals, []), refill_share=0.0)

    # a batch that has ended before anybody came ends without them
    assert served.expected([*batch, late] if late.row_id in answers else batch) == answers


def test_sampled_rows_depend_on_their_seed_alone(served: Served) -> None:
    """Company changes nothing."""
    batch = rows(FEW, temperature=1.0, top_p=0.9, seed=7)

    assert served.one_by_one(batch) == served.tokens(batch)


def test_a_row_of_nan_fails_alone(served: Served) -> None:
    """Its neighbours say what they say without it, also one that takes its place."""
    weight = served.loaded.model.get_input_embeddings().weight
    kept = weight[4].clone()
    weight.data[4] = float("nan")  # no other row contains token 4
    first, *others = rows(FEW)
    bad = Row("bad", np.array([7, 9, 9, 9, 4], dtype=np.uint32), Sampling(max_tokens=3))

    events = served.events([first, bad, *others], max_rows=3, refill_share=0.0)
    weight.data[4] = kept

    failed = events.pop("bad")
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, NonFiniteLogits)
    answers = said(events)
    assert served.expected([first, *others]) == answers


def test_no_pass_is_longer_than_a_chunk(served: Served, passes: list[int]) -> None:
    """A long prompt gives a sign of life before each of its chunks."""
    signs: list[int] = []
    batch = rows((90,))

    def step() -> Collection[str]:
        signs.append(len(passes))
        return []

    answers = served.tokens(batch, None, step, chunk_tokens=20)

    assert served.expected(batch) == answers
    assert [20, 20, 20, 20, 10] == passes[:5]
    assert list(range(len(passes))) == signs[: len(passes)]


def test_out_of_memory_halves_the_batch(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit together is answered in smaller batches; what never fits fails alone."""

    def small_only(num_tokens: int) -> None:
        if num_tokens > 40:
            raise torch.OutOfMemoryError("CUDA out of memory")

    watch(served, monkeypatch, small_only)
    batch = rows((*FEW, 64))

    events = served.events(batch)

    failed = events.pop("r64")
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, DeviceOutOfMemory)
    answers = said(events)
    assert served.expected(batch[:-1]) == answers


def test_a_model_that_fails_is_an_engine_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the model raises reaches the caller as one of our errors."""

    def broken(_: int) -> None:
        raise ValueError("a wire is loose")

    watch(served, monkeypatch, broken)

    with pytest.raises(EngineFault, match="a wire is loose"):
        served.events(rows((5,)))
