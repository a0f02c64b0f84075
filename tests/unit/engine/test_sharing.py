"""Which rows begin alike, and from whom a row takes its beginning."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.sharing import MIN_SHARED, Beginnings, in_groups, num_shared

Prompt = NDArray[np.uint32]

#: Prompts of few tokens and many lengths, so that most of them begin alike somewhere.
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), max_size=4), st.integers(1, 40)).map(
        lambda drawn: np.array([bit for bit in drawn[0] for _ in range(9)] + [2] * drawn[1])
    ),
    max_size=12,
)


def prompt(*ids: int) -> Prompt:
    """Build a prompt of these tokens."""
    return np.array(ids, dtype=np.uint32)


def test_shared_tokens_are_counted_up_to_the_first_that_differs() -> None:
    """Also where one prompt is the beginning of the other."""
    assert 2 == num_shared(prompt(1, 2, 3), prompt(1, 2, 4, 3))
    assert 3 == num_shared(prompt(1, 2, 3), prompt(1, 2, 3, 4))
    assert 0 == num_shared(prompt(7), prompt(8))


def test_groups_follow_their_oldest_member() -> None:
    """Rows that begin alike are brought together; what has no partner stays in its place."""
    a, b = list(range(100, 120)), list(range(200, 220))

    order = in_groups([prompt(*a, 1), prompt(5), prompt(*b), prompt(*a, 0), prompt(*b, 9)])

    assert [3, 0, 1, 2, 4] == order


def test_the_order_of_token_ids_is_not_that_of_their_bytes() -> None:
    """Ids of more than one byte are compared as numbers, so that neighbours stay neighbours."""
    shared = [0x0102] * 20

    order = in_groups([prompt(*shared, 1), prompt(0x0201), prompt(*shared, 0x0300)])

    assert [0, 2, 1] == order


def test_at_least_one_token_is_left_to_compute() -> None:
    """An exact duplicate takes all but its last token."""
    held: Beginnings[str] = Beginnings()
    held.add(prompt(*range(30)), "first")

    assert ("first", 29) == held.longest(prompt(*range(30)))
    assert ("first", 19) == held.longest(prompt(*range(20)))


def test_a_short_beginning_is_not_worth_copying() -> None:
    """Below the minimum the tokens are computed."""
    held: Beginnings[str] = Beginnings()
    held.add(prompt(*range(MIN_SHARED - 1), 99), "first")

    assert held.longest(prompt(*range(30))) is None


def test_a_holder_that_left_is_not_offered() -> None:
    """Its equal is, if there is one."""
    held: Beginnings[str] = Beginnings()
    held.add(prompt(*range(30)), "first")
    held.add(prompt(*range(30)), "second")

    held.discard(prompt(*range(30)), "first")
    held.discard(prompt(*range(30)), "never there")

    assert ("second", 29) == held.longest(prompt(*range(30)))


@given(PROMPTS, st.data())
def test_the_longest_beginning_is_found(prompts: list[Prompt], data: st.DataObject) -> None:
    """Whatever has come and gone, no holder shares more than the one that is named."""
    held: Beginnings[int] = Beginnings()
    present: set[int] = set()
    for index, each in enumerate(prompts):
        best = max((num_shared(each, prompts[other]) for other in present), default=0)
        best = min(best, len(each) - 1)
        found = held.longest(each)
        if best < MIN_SHARED:
            assert found is None
        else:
            assert found is not None
            holder, num_tokens = found
            assert holder in present
            assert best == num_tokens <= num_shared(each, prompts[holder])
        held.add(each, index)
        present.add(index)
        if data.draw(st.booleans()):
            leaver = data.draw(st.sampled_from(sorted(present)))
            held.discard(prompts[leaver], leaver)
            present.discard(leaver)


@given(PROMPTS)
def test_grouping_loses_nobody(prompts: list[Prompt]) -> None:
    """Every row is in the order once, and members of a group are next to each other."""
    order = in_groups(prompts)

    assert list(range(len(prompts))) == sorted(order)
    for at, index in enumerate(order[:-1]):
        best = max(num_shared(prompts[index], prompts[other]) for other in order[at + 1 :])
        alike = num_shared(prompts[index], prompts[order[at + 1]])
        assert best < MIN_SHARED or alike >= MIN_SHARED
