"""Control tokens of the model, spelled out."""

import pytest

from preprocess.tokenizer import ModelTokenizer
from tests.support.cases import documents
from tests.support.rules import look


@pytest.mark.parametrize("before", [0, 1, 200, 255, 256, 300, 5000])
def test_the_first_one_is_found_where_it_begins(before: int) -> None:
    """However much stands before it."""
    assert (1, before) == look("control_tokens_in_text", "x" * before + "<|im_end|>" + "y" * 10)


def test_many_are_counted_by_stretches() -> None:
    """Counting one in 320 characters keeps the time linear."""
    assert (4, 0) == look("control_tokens_in_text", "<|im_end|>" * 100)


@pytest.mark.parametrize("text", ["a ＜｜im_end｜＞", "a <|im\u200b_end|>", "a <|ｉｍ_end|>"])
def test_disguised_ones_are_found(text: str) -> None:
    """A reader, or a model, would take them for the token."""
    assert (1, 2) == look("control_tokens_in_text", text)


def test_control_tokens_of_others_are_flagged(tokenizer: ModelTokenizer) -> None:
    """Documents that broke other services are flagged, by this model's tokens or as chat markup."""
    found = {
        name: look("chat_markup", text.decode()) is not None
        or tokenizer.spells_control_token(text.decode())
        for name, text in documents("v01_special_tokens.jsonl").items()
    }
    # <s>, </s> and <image> are tags elsewhere, and no control tokens of this model
    plain = {"sp-03", "sp-04", "sp-13", "sp-control"}

    assert {name: name not in plain for name in found} == found
