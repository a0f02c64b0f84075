"""What texts have in common."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.shingles import _BLOCK_LEN, shingles


def _shared(left: str, right: str) -> float:
    """Return the share of sequences that both have."""
    one, other = set(shingles(left).tolist()), set(shingles(right).tolist())
    return len(one & other) / len(one | other)


@pytest.mark.parametrize(
    ("text", "num"),
    [
        ("", 0),
        ("?! -- …", 0),
        ("yes", 1),
        ("one two three four five", 1),
        ("one two three four five six", 2),
        ("今天天气很好", 2),
        ("สวัสดี", 2),
        ("हिन्दी में यह एक छोटा सा वाक्य", 3),
        ("👍👎", 1),
    ],
)
def test_sequences_of_five_words(text: str, num: int) -> None:
    """Words are counted in every script; of fewer than five there is one sequence."""
    assert num == len(shingles(text))


@pytest.mark.parametrize(
    "other",
    [
        "the valve, when SHUT: holds the water back",
        "  The valve when\nshut holds\u2028the water back!",
        "«The» valve — when shut — (holds) the water back…",
    ],
)
def test_case_spaces_and_punctuation_do_not_count(other: str) -> None:
    """Texts that differ in these alone have the same sequences."""
    assert 1.0 == _shared("The valve when shut holds the water back.", other)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("valve shut", "valve open"),
        ("yes", "no"),
        ("7", "8"),
        ("👍", "👎"),
        ("कि", "की"),
        ("a", "ab"),
    ],
)
def test_short_texts_share_nothing_for_being_short(left: str, right: str) -> None:
    """Whoever says less than five words shares only with who says the same."""
    assert 0.0 == _shared(left, right)


def test_a_word_counts_wherever_it_stands() -> None:
    """Long texts are taken in blocks; where those end does not matter, but for overlong words."""
    words = " ".join(f"word{number}" for number in range(_BLOCK_LEN // 4))
    moved = "an opening sentence moves all of it. " + words
    hashes, others = shingles(words), shingles(moved)

    assert np.array_equal(hashes, others[len(others) - len(hashes) :])


def test_all_processes_agree() -> None:
    """The numbers do not depend on how a process seeds its hashes."""
    program = (
        "from preprocess.shingles import shingles; print(shingles('Größe zählt doch').tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        env={"PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert f"{shingles('grösse ZÄHLT doch').tolist()}\n" == printed


@given(st.text(), st.text())
def test_any_text_has_sequences(left: str, right: str) -> None:
    """Whatever the characters, a text's sequences come again in one that it is a part of."""
    hashes = set(shingles(left).tolist())
    held = set(shingles(f"{left}\n{right}").tolist())

    assert hashes <= held or len(hashes) == 1
