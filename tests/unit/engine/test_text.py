"""What of an answer is text, and where a stop string ends it."""

import pytest

from engine.text import Detokenizer, StopScanner, cut_at
from tests.support.tiny_model import build_tokenizer

TOKENIZER = build_tokenizer()
DETOKENIZER = Detokenizer(TOKENIZER)


def encode(text: str) -> list[int]:
    """Return the ids of plain text."""
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def pushes(text: str, *stops: str) -> int | None:
    """Return after how many tokens of `text` the scanner says stop."""
    scanner = StopScanner(DETOKENIZER, stops)
    hits = (count for count, token in enumerate(encode(text), start=1) if scanner.push(token))
    return next(hits, None)


@pytest.mark.parametrize(
    "text", ["plain words", "naïve café", "日本語 🙂", "a\ufffdb", "ends \ufffd"]
)
def test_whole_text_comes_back(text: str) -> None:
    """Every character survives, a genuine replacement character at the end included."""
    assert text == DETOKENIZER.final(encode(text))


@pytest.mark.parametrize("text", ["price: 5 €", "smile 🙂"])
def test_a_character_cut_at_the_end_is_left_out(text: str) -> None:
    """An answer that ends in the middle of a character ends before it."""
    assert text[:-1] == DETOKENIZER.final(encode(text)[:-1])


def test_control_tokens_are_not_text() -> None:
    """Tokens such as the end of a turn leave no trace."""
    assert "ab" == DETOKENIZER.final([0, *encode("ab"), 3])


def test_a_stop_string_is_found_across_tokens() -> None:
    """The scanner says stop with the token that completes the match, and not before."""
    text = "one two END three"
    count = pushes(text, "END")

    assert count is not None
    assert "END" in DETOKENIZER.decode(encode(text)[:count])
    assert "END" not in DETOKENIZER.decode(encode(text)[: count - 1])


@pytest.mark.parametrize("stop", ["é", "本語", "🙂 x", "\n\n", "c"])
def test_stop_strings_of_many_bytes_are_found(stop: str) -> None:
    """A stop string may be made of characters that take several tokens each."""
    assert pushes(f"abc é 日本語 🙂 x\n\nz{stop}", stop) is not None


def test_text_without_a_stop_string_runs_on() -> None:
    """Half a stop string, or one in other letters, stops nothing."""
    assert pushes("EN D end EN", "END") is None


def test_the_earliest_stop_string_counts() -> None:
    """Whichever of several stop strings begins first cuts the text."""
    assert 2 == cut_at("a b c", ["c", "b"])
    assert cut_at("a b c", ["x"]) is None
    assert cut_at("a b c", []) is None
