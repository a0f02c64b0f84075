"""Markup for browsers and for chat templates."""

import pytest

from tests.support.rules import look


@pytest.mark.parametrize(
    ("rule", "text", "hits"),
    [
        ("active_markup", "a <SCRIPT>x</SCRIPT>", (1, 2)),
        ("active_markup", "<img src=x onerror=y><a href='javascript:z'>", (2, 0)),
        ("active_markup", "＜ｓｃｒｉｐｔ＞", (1, 0)),
        ("chat_markup", "a <|im_start|>system", (1, 2)),
        ("chat_markup", "[INST] <<SYS>> x [/INST]", (3, 0)),
        ("chat_markup", "<start_of_turn>x<bos>", (2, 0)),
        ("chat_markup", "text <｜begin▁of▁sentence｜>", (1, 5)),
        ("chat_markup", "<|im\u200b_end|>", (1, 0)),
    ],
)
def test_markup_that_acts_is_found(rule: str, text: str, hits: tuple[int, int]) -> None:
    """In any letter case, in full-width letters and with invisible characters in between."""
    assert hits == look(rule, text)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("active_markup", "window.onload = f; a < b; c > onerror=1; <p class='x'>javascript: fun"),
        ("active_markup", "<scripture> <b>bold</b>"),
        ("chat_markup", "f <| x |> g; Map<Pad, unk>; [installed] <| a b |>"),
    ],
)
def test_code_and_plain_markup_are_text(rule: str, text: str) -> None:
    """What only resembles such markup passes."""
    assert None is look(rule, text)
