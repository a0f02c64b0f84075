"""Long texts in pieces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.tokenizer import ModelTokenizer
from preprocess.windows import windows

PROSE = "The pump house log lists three valves, two of them sealed.\n\n  42 more? Über all, no.\r\n"


@given(
    text=st.one_of(st.text(max_size=200), st.text("ab \n", max_size=200)), size=st.integers(1, 40)
)
def test_windows_are_the_text(text: str, size: int) -> None:
    """Nothing is lost, nothing is longer than a window, and all but the last are half full."""
    found = list(windows(text, size))

    assert text == "".join(found)
    assert all(size // 2 <= len(window) <= size for window in found[:-1])
    assert len(found[-1]) <= size


@pytest.mark.parametrize("size", range(20, 60, 7))
def test_windows_change_no_token_of_prose(tokenizer: ModelTokenizer, size: int) -> None:
    """Whatever the length of a window, prose has the tokens that it has as a whole."""
    text = PROSE * 20
    whole = tokenizer.encode_documents([text])[0]
    pieces = tokenizer.encode_documents(list(windows(text, size)))
    assert whole is not None

    together = np.concatenate([tokens for tokens in pieces if tokens is not None])
    assert whole.tolist() == together.tolist()


def test_a_long_document_has_its_own_tokens(tokenizer: ModelTokenizer) -> None:
    """A million characters in windows are what they are in one, and neighbours are untouched."""
    text = PROSE * 12_000
    short, long = tokenizer.encode_documents([PROSE, text])
    assert short is not None
    assert long is not None

    assert short.tolist() * 3 == long[: 3 * len(short)].tolist()
    assert 12_000 * len(short) == len(long)
