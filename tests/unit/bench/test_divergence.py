"""What the bench of divergence counts."""

from bench.divergence import agreeing_positions, identical_rows

EXPECTED = {"a": (1, 2, 3, 4), "b": (5, 6), "c": (7, 8)}


def test_equal_answers_agree_wholly() -> None:
    """Nothing differs from itself."""
    assert 1.0 == identical_rows(EXPECTED, EXPECTED)
    assert 1.0 == agreeing_positions(EXPECTED, EXPECTED)


def test_what_follows_a_difference_agrees_no_more() -> None:
    """Tokens that happen to be equal after another one are answers to another text."""
    answers = {"a": (1, 9, 3, 4), "b": (5, 6), "c": (9, 8)}

    assert 1 / 3 == identical_rows(EXPECTED, answers)
    assert 3 / 8 == agreeing_positions(EXPECTED, answers)


def test_an_answer_that_ends_early_agrees_as_far_as_it_goes() -> None:
    """Half an answer is half right, and not the same answer."""
    answers = {"a": (1, 2), "b": (5, 6), "c": (7, 8, 9)}

    assert 1 / 3 == identical_rows(EXPECTED, answers)
    assert 6 / 8 == agreeing_positions(EXPECTED, answers)
