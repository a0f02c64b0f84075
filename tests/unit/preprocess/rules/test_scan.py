"""One look at every character."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from preprocess.rules.scan import Mark, Scan, replace, runs


def _scan(text: str) -> Scan:
    return Scan(text, lambda _: False)


def test_a_text_without_anything_odd_has_only_letters_and_spaces() -> None:
    """Most rules need no second look at most texts."""
    assert Mark.LATIN | Mark.LOOKALIKE | Mark.CODED | Mark.SPACE == _scan("plain text").present


def test_an_empty_text_has_no_marks() -> None:
    """Nothing is found in nothing."""
    assert 0 == _scan("").present


def test_folding_shows_what_a_reader_sees() -> None:
    """Invisible characters go, and letters of other shapes become plain ones."""
    assert "<|im_end|> ok" == _scan("＜｜im\u200b_ｅｎｄ｜＞ 𝐨𝐤").folded


def test_folding_leaves_plain_text_alone() -> None:
    """Text in which nothing is hidden is not copied."""
    scan = _scan("Größe 泵房，１２３ ½")

    assert scan.text is scan.folded


def test_lower_case_keeps_the_number_of_characters() -> None:
    """Offsets in the lower-case text are those of the folded one."""
    scan = _scan("İSTANBUL İ")

    assert len(scan.folded) == len(scan.lowered)


@given(st.text(alphabet="ab \u200b\u200cＡ𝐁\u202e\ufe0fİ", max_size=80))
def test_the_origin_of_a_folded_character_folds_to_it(text: str) -> None:
    """Where something is found in the folded text, the text has what it came from."""
    scan = _scan(text)
    for at in range(len(scan.folded)):
        rest = _scan(text[scan.origin(at) :] + "Ａ").folded

        assert scan.folded[at:] + "A" == rest


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 12))
def test_runs_are_found_wherever_they_begin(values: list[bool], min_len: int) -> None:
    """Exactly the maximal runs of at least the length asked for are found."""
    starts, ends = runs(np.array(values, dtype=np.bool_), min_len)
    text = "".join("x" if value else " " for value in values)
    words, at = [], 0
    for word in text.split(" "):
        if len(word) >= min_len:
            words.append((at, at + len(word)))
        at += len(word) + 1

    assert words == list(zip(starts.tolist(), ends.tolist(), strict=True))


def test_replacing_keeps_what_lies_between() -> None:
    """Spans are replaced in order, and all else stays."""
    assert "aXcYe" == replace("abcde", [(1, 2, "X"), (3, 4, "Y")])
