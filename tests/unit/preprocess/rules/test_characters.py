"""Characters that no text needs, or that nobody sees."""

import pytest

from tests.support.rules import look, repaired

_FLAG = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


@pytest.mark.parametrize(
    ("rule", "text", "hits", "mended"),
    [
        ("lone_surrogates", "a\ud800b", (1, 1), "a\ufffdb"),
        ("lone_surrogates", "a\ud83d\udc4db", (2, 1), "a👍b"),
        ("lone_surrogates", "\udc4d\ud83d", (2, 0), "\ufffd\ufffd"),
        ("control_characters", "a\0b\x9fc", (2, 1), "abc"),
        ("noncharacters", "a\ufffe\U0010ffff", (2, 1), "a\ufffd\ufffd"),
        ("tag_characters", f"{_FLAG}a\U000e0041", (1, 8), f"{_FLAG}a"),
        ("tag_characters", "🏴\U000e0067", (1, 1), "🏴"),
        ("variation_selectors", "a\ufe0f\ufe0e\U000e0100b", (1, 1), "a\ufe0fb"),
        ("zero_width", "a\u200b\u200db", (1, 1), "ab"),
        ("zero_width", "Сбер\u200bбанк", (1, 4), "Сбербанк"),
        ("zero_width", " \u200b\u200c\u200b\u200b ", (1, 1), "  "),
        ("stacked_marks", "e" + "\u0301" * 10 + "x", (1, 1), "e" + "\u0301" * 8 + "x"),
    ],
)
def test_what_is_found_can_be_mended(
    rule: str, text: str, hits: tuple[int, int], mended: str
) -> None:
    """A repair takes away what was found, and nothing else."""
    assert hits == look(rule, text)
    assert mended == repaired(rule, text)
    assert None is look(rule, mended)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("control_characters", "\a\b\t\n\v\f\r\x1b\x85"),
        ("noncharacters", "\ufffd\ufeff"),
        ("tag_characters", _FLAG * 3),
        ("variation_selectors", "❤\ufe0f☺\ufe0e葛\U000e0100"),
        (
            "zero_width",
            "می\u200cروم ක\u0dca\u200dෂ 👨\u200d👩 a\u200b ไทย\u200bไทย\u200bok \u200b\u200b\u200b",
        ),
        ("stacked_marks", "o\u0302\u0301 " + "a" + "\u0301" * 8),
    ],
)
def test_what_some_script_needs_is_not_found(rule: str, text: str) -> None:
    """Joiners, selectors, flags and accents in their places are text."""
    assert None is look(rule, text)


def test_private_use_characters_are_counted() -> None:
    """They have no common meaning, so that only their reader can say what they are."""
    assert (2, 2) == look("private_use", "a \ue000\U000f0000")
