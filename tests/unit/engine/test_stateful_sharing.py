"""Stateful models compute what rows begin with together once, and answer as if they had not."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from engine.base import Row, RowDone, Sampling
from engine.stateful import GroupedBatch
from tests.support.stateful import (
    MAX_TOKENS,
    Served,
    rows,
)


def sharers() -> list[Row]:
    """Return rows that share a long beginning, part of it, all of it, or nothing."""
    long, other = (row.prompt for row in rows((90, 64)))
    prompts = {
        "first": long,
        "parts": np.concatenate([long[:50], other[:20]]),
        "equal": long,
        "within": long[:70],
        "parts early": np.concatenate([long[:40], other[:9]]),
        "nothing": other,
    }
    return [Row(name, prompt, Sampling(MAX_TOKENS)) for name, prompt in prompts.items()]


@pytest.mark.parametrize("limits", [{}, {"chunk_tokens": 11}, {"max_rows": 2}], ids=str)
def test_rows_that_share_a_beginning_say_what_each_says_alone(
    served: Served, limits: dict[str, Any]
) -> None:
    """However much is shared, and wherever passes end."""
    batch = sharers()

    assert served.one_by_one(batch) == served.tokens(batch, **limits)


def test_a_shared_beginning_is_computed_once(served: Served, passes: list[int]) -> None:
    """What two prompts have in common is one computation; each row says what it was spared."""
    if served.batch is GroupedBatch:
        pytest.skip("rows of one group all compute their own")
    batch = sharers()

    events = served.events(batch)

    prompts = [row.prompt.tolist() for row in batch]
    distinct = {tuple(each[:end]) for each in prompts for end in range(1, len(each) + 1)}
    num_prompt = len(distinct) + 1  # of two equal prompts, each computes the last token
    spared = [each.num_cached_tokens for each in events.values() if isinstance(each, RowDone)]
    assert num_prompt == sum(map(len, prompts)) - sum(spared)
    assert num_prompt + (MAX_TOKENS - 1) * len(batch) == sum(passes)


@pytest.mark.parametrize("when", range(1, 7))
def test_a_source_that_leaves_takes_nobody_along(served: Served, when: int) -> None:
    """Rows that waited for it compute their beginning themselves."""
    batch = sharers()
    expected = served.tokens(batch[1:])
    calls = 0

    def step() -> Collection[str]:
        nonlocal calls
        calls += 1
        return ["first"] if calls == when else []

    answers = served.tokens(batch, None, step, chunk_tokens=20)

    answers.pop("first", None)
    assert expected == answers
