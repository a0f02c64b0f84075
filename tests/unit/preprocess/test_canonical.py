"""Which texts are the same text."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.canonical import canonical
from tests.support.cpu_time import cpu_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\u0301", "é"),
        ("a\r\nb\rc\n", "a\nb\nc"),
        ("\ufeffa", "a"),
        ("a\n\n\r\n\r", "a"),
        ("\n\n", ""),
        ("\u212b", "Å"),
    ],
)
def test_spellings_become_one(text: str, expected: str) -> None:
    """Composition, line ends, the byte order mark and trailing lines are brought to one form."""
    assert expected == canonical(text)


@pytest.mark.parametrize(
    "text",
    ["A", "a  b", " a ", "\n\na", "x²", "ﬁ", "a\u200db", "a\u200cb", "\u2028", "a\ufeffb", "„“"],
)
def test_all_else_stays(text: str) -> None:
    """Case, white space, compatibility characters, joiners and quotes are left as they are."""
    assert text == canonical(text)


@given(st.text() | st.text(alphabet="ae\u0301\u0316\u0327\r\n\ufeff"))
def test_it_is_stable_and_an_equivalent_text(text: str) -> None:
    """Any text has a form; texts that are canonically equivalent share it, apart from line ends."""
    form = canonical(text)
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")

    assert unicodedata.normalize("NFC", lines) == form
    assert form == canonical(unicodedata.normalize("NFD", form))


def test_hostile_marks_take_linear_time() -> None:
    """A hundred thousand combining marks in no order neither sort for minutes nor get lost."""
    marks = [chr(code) for code in range(0x300, 0x370) if unicodedata.combining(chr(code))]
    hostile = "a" + "".join(random.Random(1).choices(marks, k=100_000)) + "e\u0301"
    form = canonical(hostile)

    assert cpu_seconds(lambda: canonical(hostile), runs=1) < 1
    assert hostile[:100_001] == form[:100_001]
