"""Cuts between words and graphemes."""

import pytest

from preprocess.breaks import is_inside_grapheme, last_break


@pytest.mark.parametrize(
    ("text", "limit", "place"),
    [
        ("one two three", 9, 8),
        ("abcdefgh", 5, 5),
        ("e\u0301e\u0301e\u0301", 3, 2),
        ("🇩🇪🇫🇷🇮🇹", 3, 2),
        ("👨\u200d👩\u200d👧!", 4, 4),
        ("one. Two", 8, 8),
    ],
)
def test_breaks_inside_a_unit(text: str, limit: int, place: int) -> None:
    """A word's end first, else a grapheme's; inside a grapheme only where it fills all."""
    assert place == last_break(text, 0, limit)


@pytest.mark.parametrize(
    "grapheme",
    [
        "e\u0301",
        "🇩🇪",
        "👨\u200d👩",
        "👍🏽",
        "\r\n",
        "क्ष",
        "\u1112\u1161",
        "☎\ufe0f",
    ],
)
def test_the_inside_of_a_grapheme_is_known(grapheme: str) -> None:
    """Neither what it begins with nor what follows it is inside."""
    text = f"a{grapheme}b"

    inside = [is_inside_grapheme(text, 1, at) for at in range(2, 1 + len(grapheme))]
    assert [True] * (len(grapheme) - 1) == inside
    assert not is_inside_grapheme(text, 0, 1)
    assert not is_inside_grapheme(text, 1, 1 + len(grapheme))
