"""Guesses at what a row says next."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.drafts import Drafter


def drafter(*ids: int) -> Drafter:
    """Build the drafter of a prompt."""
    return Drafter(np.array(ids, dtype=np.uint32))


def test_what_followed_the_latest_tokens_last_time_is_proposed() -> None:
    """The most recent occurrence counts."""
    row = drafter(1, 2, 3, 4, 9, 1, 2, 3, 5, 6, 7, 1, 2, 3)

    assert [5, 6, 7] == row.propose(3)[0]


def test_three_tokens_say_more_than_two() -> None:
    """Two are looked up only where three have not been seen."""
    assert [4] == drafter(1, 2, 3, 4, 8, 2, 3, 5, 1, 2, 3).propose(1)[0]
    assert [5] == drafter(1, 2, 3, 4, 8, 2, 3, 5, 7, 2, 3).propose(1)[0]


def test_a_loop_goes_on() -> None:
    """Where the tokens read end, what has been read is read on."""
    assert [7, 8, 9, 7, 8] == drafter(7, 8, 9, 7, 8, 9).propose(5)[0]


def test_without_a_precedent_there_is_no_draft() -> None:
    """Nor in a prompt of one token."""
    assert not drafter(1, 2, 3, 4).propose(4)[0]
    assert not drafter(1).propose(4)[0]


def test_acceptance_follows_what_came_of_proposals() -> None:
    """It rises with each token foreseen and falls with each other, whether drafts were computed."""
    row = drafter(1, 2, 3, 4, 5, 1, 2, 3)

    before = row.propose(1)
    row.push(4)
    risen = row.propose(1)
    row.push(9)
    for token in (1, 2, 3):
        row.push(token)
    fallen = row.propose(1)

    assert ([4], [5], [4]) == (before[0], risen[0], fallen[0])
    assert before[1] < risen[1] > fallen[1]


def test_longer_matches_are_trusted_more() -> None:
    """Each length begins with what it was right about on average."""
    longer = drafter(1, 2, 3, 4, 1, 2, 3).propose(1)
    shorter = drafter(9, 2, 3, 4, 1, 2, 3).propose(1)

    assert longer[0] == shorter[0] == [4]
    assert longer[1] > shorter[1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 40))
def test_tokens_said_are_looked_up_like_those_of_the_prompt(ids: list[int], given: int) -> None:
    """A row that said part of its tokens proposes what it would with all of them in its prompt."""
    said = drafter(*ids[:given])
    for token in ids[given:]:
        said.push(token)

    assert drafter(*ids).propose(6)[0] == said.propose(6)[0]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_a_proposal_follows_an_equal_sequence(ids: list[int]) -> None:
    """Its first token stood behind the same two tokens earlier."""
    proposal = drafter(*ids).propose(1)[0]

    seen = {tuple(ids[at : at + 3]) for at in range(len(ids) - 2)}
    assert not proposal or (*ids[-2:], proposal[0]) in seen
    assert proposal or tuple(ids[-2:]) not in {each[:2] for each in seen}
