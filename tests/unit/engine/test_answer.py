"""When an answer ends, and what its event says."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from docmill.errors import NonFiniteLogits
from engine.answer import Answer, refusal
from engine.base import Event, Row, RowDone, RowFailed, Sampling
from engine.text import Detokenizer
from tests.support.tiny_model import build_tokenizer

DETOKENIZER = Detokenizer(build_tokenizer())
WORDS = build_tokenizer().encode("abc def ghi", add_special_tokens=False)
EOS = 1


def row(max_tokens: int, *stop: str) -> Row:
    """Build a row of three tokens."""
    return Row("row", np.array([5, 6, 7], dtype=np.uint32), Sampling(max_tokens, stop=stop))


def run(answer: Answer, tokens: list[int]) -> Event | None:
    """Push tokens until the answer ends."""
    return next((event for token in tokens if (event := answer.push(token))), None)


def answer(max_tokens: int, *stop: str) -> Answer:
    """Start an answer whose clock moves by one second each time it is read."""
    ticks: Iterator[int] = count(1)
    started = Answer(row(max_tokens, *stop), DETOKENIZER, {EOS}, lambda: float(next(ticks)))
    started.start()
    return started


def test_the_end_of_text_token_ends_an_answer_and_is_counted() -> None:
    """It is among the tokens but not in the text."""
    event = run(answer(50), [*WORDS, EOS, 9])

    assert isinstance(event, RowDone)
    assert ("abc def ghi", "stop") == (event.text, event.finish_reason)
    assert ((*WORDS, EOS), len(WORDS) + 1) == (event.token_ids, event.num_tokens)


def test_an_answer_of_nothing_but_the_end_is_empty() -> None:
    """A model may end at once."""
    event = run(answer(1), [EOS])

    assert isinstance(event, RowDone)
    assert ("", "stop", 1) == (event.text, event.finish_reason, event.num_tokens)


def test_the_limit_ends_an_answer() -> None:
    """The reason is length, and the text is what fits."""
    event = run(answer(2), WORDS)

    assert isinstance(event, RowDone)
    assert ("length", 2) == (event.finish_reason, event.num_tokens)
    assert DETOKENIZER.decode(WORDS[:2]) == event.text


def test_a_stop_string_ends_an_answer_before_itself() -> None:
    """Nothing of the match is in the text; the tokens that made it are counted."""
    event = run(answer(50, "zzz", "c d"), WORDS)

    assert isinstance(event, RowDone)
    assert ("ab", "stop") == (event.text, event.finish_reason)
    assert event.num_tokens < len(WORDS)


def test_seconds_are_split_at_the_first_token() -> None:
    """Prefill lasts until the first token, decoding from there to the last."""
    event = run(answer(3), WORDS)

    assert isinstance(event, RowDone)
    assert (1.0, 1.0) == (event.prefill_s, event.decode_s)


def test_scores_that_are_not_finite_fail_the_row() -> None:
    """The error says at which token."""
    begun = answer(9)
    begun.push(WORDS[0])

    event = begun.push(None)

    assert isinstance(event, RowFailed)
    assert isinstance(event.error, NonFiniteLogits)
    assert "token 2" in event.error.message


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "named"),
    [
        ([], 4, "0 tokens"),
        ([4] * 7, 4, "fit the model's 10"),
        ([4], 0, "0 output"),
        ([400], 4, "400"),
    ],
)
def test_rows_that_cannot_run_are_refused(prompt: list[int], max_tokens: int, named: str) -> None:
    """The message has the numbers that do not fit."""
    error = refusal(
        Row("row", np.array(prompt, dtype=np.uint32), Sampling(max_tokens)),
        context_len=10,
        vocab_size=320,
    )

    assert error is not None
    assert named in error.message
