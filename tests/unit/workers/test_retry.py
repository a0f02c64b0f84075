"""What happens to a document that failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import (
    DeviceOutOfMemory,
    DocmillError,
    EngineError,
    NonFiniteLogits,
    from_code,
)
from workers.retry import BASE_S, MAX_S, Again, GiveUp, Trouble, decide, trace_digest, trouble

PASSING = Trouble("device_out_of_memory", "none left", is_retryable=True)
LASTING = Trouble("non_finite_logits", "NaN", is_retryable=False)


def test_what_cannot_get_better_is_given_up_at_once() -> None:
    """A permanent error needs no second try to be believed."""
    assert GiveUp("non_finite_logits", "NaN") == decide(LASTING, 1, 5, 0.5)


def test_what_may_pass_is_tried_again_later_each_time() -> None:
    """The delay doubles with each delivery, up to its cap."""
    delays = [decide(PASSING, count, 100, 1.0) for count in (1, 2, 3, 7, 50)]

    assert [Again(1.0), Again(2.0), Again(4.0), Again(MAX_S), Again(MAX_S)] == delays


def test_the_limit_ends_it() -> None:
    """After the last delivery the document is given up, and the last error is told."""
    verdict = decide(PASSING, 3, 3, 0.5)

    assert isinstance(verdict, GiveUp)
    assert "delivery_limit" == verdict.code
    assert "3 deliveries; at last device_out_of_memory: none left" in verdict.message


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_delays_are_spread_and_bounded(delivery_count: int, jitter: float) -> None:
    """Whatever was drawn, the wait is at least half of what its delivery calls for."""
    verdict = decide(PASSING, delivery_count, 10**10, jitter)

    assert isinstance(verdict, Again)
    assert BASE_S / 2 <= verdict.delay_s <= MAX_S
    full = decide(PASSING, delivery_count, 10**10, 1.0)
    assert isinstance(full, Again)
    assert full.delay_s / 2 <= verdict.delay_s <= full.delay_s


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - any exception is the point
        return caught


@pytest.mark.parametrize(
    ("error", "is_retryable"),
    [(NonFiniteLogits("x"), False), (DeviceOutOfMemory("x"), True), (EngineError("x"), False)],
    ids=lambda value: type(value).__name__,
)
def test_our_errors_say_themselves_whether_to_retry(
    error: DocmillError, is_retryable: bool
) -> None:
    """Code and message are theirs."""
    found = trouble(_raised(error))

    assert (error.code, "x", is_retryable) == (found.code, found.message, found.is_retryable)
    assert found.trace


def test_a_strangers_error_may_pass() -> None:
    """Nobody knows what it means, so it is tried again, and its class is not forgotten."""
    found = trouble(_raised(ValueError("a bug")))

    assert found.is_retryable
    assert "ValueError: a bug" == found.message
    assert from_code(found.code) is DocmillError


def _deep(error: Exception, depth: int) -> None:
    if depth:
        _deep(error, depth - 1)
    raise error


def _digest(error: Exception, depth: int = 0) -> str:
    try:
        _deep(error, depth)
    except Exception as caught:  # noqa: BLE001 - any exception is the point
        return trace_digest(caught)
    raise AssertionError


def test_equal_faults_have_equal_digests() -> None:
    """Where it happened decides, not what was said."""
    digests = [_digest(ValueError("one")), _digest(KeyError("two"))]

    assert digests[0] == digests[1]
    assert digests[0] != _digest(ValueError("one"), depth=1)
    assert 12 == len(digests[0]) == len(bytes.fromhex(digests[0])) * 2


def _wrapped(depth: int) -> str:
    try:
        try:
            _deep(KeyError("cause"), depth)
        except KeyError as error:
            raise EngineError("wrapped") from error
    except EngineError as error:
        return trace_digest(error)
    raise AssertionError


def test_causes_count() -> None:
    """An error that wraps another is told apart by where the other came from."""
    assert _wrapped(0) == _wrapped(0)
    assert _wrapped(0) != _wrapped(2)


def test_an_error_that_was_never_raised_has_no_digest() -> None:
    """An engine reports a row's failure without a traceback."""
    assert "" == trace_digest(NonFiniteLogits("x"))
