"""What of an answer is text, and where a stop string ends it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def found_eagerly(ids: Sequence[int], stops: Sequence[str]) -> int | None:
    """Return after how many tokens the text holds a stop string, by decoding all of it each time.

    A character that lacks bytes at the end is waited for, as the scanner does.
    """
    for count in range(1, len(ids) + 1):
        text = DETOKENIZER.decode(ids[:count])
        if not text.endswith("\ufffd") and cut_at(text, stops) is not None:
            return count
    return None


#: Pieces whose bytes are split over tokens, cut anywhere: parts of characters, spaces, line ends.
PIECES = st.lists(
    st.sampled_from([[token] for token in encode("a é 日🙂 \n.END the")] + [[3], [0]]), max_size=14
).map(lambda pieces: [token for piece in pieces for token in piece])


@given(
    PIECES, st.lists(st.sampled_from(["é", "E", "END", " ", "\n", "日🙂", "a.", "the"]), min_size=1)
)
def test_the_scanner_says_stop_where_decoding_everything_would(
    ids: list[int], stops: list[str]
) -> None:
    """Although it decodes only where a stop string may end."""
    scanner = StopScanner(DETOKENIZER, stops)
    hits = (count for count, token in enumerate(ids, start=1) if scanner.push(token))

    assert found_eagerly(ids, stops) == next(hits, None)


def test_text_is_decoded_only_where_a_stop_string_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each token brings is looked up once and kept."""
    calls: list[Sequence[int]] = []
    detokenizer = Detokenizer(TOKENIZER)
    decode = detokenizer.decode
    text = "the river runs under the old bridge " * 9
    for token in encode(text):
        detokenizer.characters(token)

    def counted(ids: Sequence[int]) -> str:
        calls.append(ids)
        return decode(ids)

    monkeypatch.setattr(detokenizer, "decode", counted)

    scanner = StopScanner(detokenizer, ["END", "?"])

    assert not any(scanner.push(token) for token in encode(text))
    assert not calls


def test_the_earliest_stop_string_counts() -> None:
    """Whichever of several stop strings begins first cuts the text."""
    assert 2 == cut_at("a b c", ["c", "b"])
    assert cut_at("a b c", ["x"]) is None
    assert cut_at("a b c", []) is None
