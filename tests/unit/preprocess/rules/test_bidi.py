"""Characters that reorder text on a screen."""

import pytest

from tests.support.rules import look, repaired


@pytest.mark.parametrize(
    ("text", "hits", "mended"),
    [
        ("a\u202eb", (1, 1), "ab"),
        ("a\u202eb\u202cc", (2, 1), "abc"),
        ("a\u202ab\nc\u202cd", (2, 1), "ab\ncd"),
        ("a\u2067b\u202cc\u2069", (1, 3), "a\u2067bc\u2069"),
        ("\u2069", (1, 0), ""),
        ("\u2066\u202e\u2069", (3, 0), ""),
        ("\u202aok\u202c \u202d no", (1, 5), "\u202aok\u202c  no"),
    ],
)
def test_what_reorders_beyond_its_end_is_found(
    text: str, hits: tuple[int, int], mended: str
) -> None:
    """Overrides, and what is opened or closed only, is found and taken away."""
    assert hits == look("bidi_controls", text)
    assert mended == repaired("bidi_controls", text)
    assert None is look("bidi_controls", mended)


@pytest.mark.parametrize(
    "text",
    [
        "שלום \u200eABC\u200e עולם \u061c",
        "\u202aHello\u202c \u202bשלום\u202c",
        "\u2068Amina\u2069 has \u2067\u202a5\u202c\u2069",
    ],
)
def test_marks_and_closed_embeddings_are_text(text: str) -> None:
    """Right-to-left text and messages with names in them need these."""
    assert None is look("bidi_controls", text)
