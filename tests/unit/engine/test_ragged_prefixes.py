"""Who takes the beginning of a prompt from whom."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.ragged_prefixes import MIN_SHARED, Beginning, plan_beginnings
from engine.sharing import num_shared


def prompt(*runs: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return a prompt of runs of 40 equal tokens."""
    return np.repeat(np.array(runs, dtype=np.uint32), 40)


def test_rows_begin_where_they_part_from_the_first_that_shares_most() -> None:
    """What an earlier row computes is not computed again, and nothing is waited for in vain."""
    prompts = [prompt(1, 2, 3), prompt(1, 2, 4), prompt(1, 5), prompt(6), prompt(1, 2, 4, 7)]

    plans = plan_beginnings(prompts)

    assert [None, Beginning(0, 80), Beginning(0, 40), None, Beginning(1, 120)] == plans


def test_the_last_token_of_a_copy_is_computed() -> None:
    """Its scores are needed, so an equal prompt takes all but one token."""
    assert [None, Beginning(0, 79)] == plan_beginnings([prompt(1, 2), prompt(1, 2)])


def test_short_beginnings_are_not_worth_a_halt() -> None:
    """Below the limit every row computes its own."""
    shared = np.arange(MIN_SHARED - 1, dtype=np.uint32)
    prompts = [np.append(shared, np.uint32(last)) for last in (500, 600)]

    assert [None, None] == plan_beginnings(prompts)


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=1, max_size=8))
def test_a_source_computes_the_token_before_they_part(runs: list[list[int]]) -> None:
    """So it halts there with exactly the state that the row goes on from."""
    prompts = [prompt(*each) for each in runs]
    plans = plan_beginnings(prompts)

    for index, plan in enumerate(plans):
        if plan is not None:
            own = plans[plan.source]
            assert plan.source < index
            assert plan.num_tokens <= num_shared(prompts[plan.source], prompts[index])
            assert own is None or own.num_tokens < plan.num_tokens
