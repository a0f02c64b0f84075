"""Where a document that is cut ends."""

import pytest
import regex  # type: ignore[import-untyped] # it has no py.typed
from hypothesis import given
from hypothesis import strategies as st

from preprocess.base import Tokenizer
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.tokenizer import ModelTokenizer
from preprocess.truncate import Fit, Room, fit

PROSE = "The pump was started by hand again. Nobody knows why. The valve was sealed in May."
TABLE = "| name | state |\n|---|---|\n| one | open |\n| two | shut |\n| three | open |\n"
CODE = "```\nopen(1)\n\nclose(2)\n\nopen(3)\n```\n"
GRAPHEMES = [
    "e\u0301",
    "👨\u200d👩\u200d👧",
    "🇩🇪",
    "가",
    "a",
    " ",
    "नि",
    "👍🏽",
    "\u1112\u1161\u11ab",
]


def _kept(text: str, num_chars: int, tokenizer: Tokenizer) -> str:
    """Cut a text to the tokens of its first characters, and return what is kept."""
    tokens = tokenizer.encode_documents([text])[0]
    budget = tokenizer.encode_documents([text[:num_chars]])[0]
    assert tokens is not None
    assert budget is not None
    outcome = fit(text, tokens, Room(len(budget) + 2, 1, 1), "semantic", "", tokenizer)
    assert isinstance(outcome, Fit)
    assert len(outcome.tokens) <= len(budget)
    return outcome.text


def test_a_paragraph_s_end_near_the_limit_is_best(tokenizer: ModelTokenizer) -> None:
    """A sentence more would fit, and is worth less than a whole paragraph."""
    paragraphs = f"{PROSE}\n\n{PROSE}\n\n"

    assert paragraphs.rstrip() == _kept(f"{paragraphs}So it was. {PROSE}", 180, tokenizer)


def test_a_sentence_s_end_is_next(tokenizer: ModelTokenizer) -> None:
    """Without a paragraph's end close by, the last sentence that fits is kept whole."""
    assert PROSE[:53] == _kept(PROSE, 70, tokenizer)
    assert PROSE[:35] == _kept(PROSE, 50, tokenizer)


def test_wrapped_lines_are_no_boundaries(tokenizer: ModelTokenizer) -> None:
    """A cut at the end of a wrapped line would be one inside a sentence."""
    wrapped = (
        "The valve was opened on Monday, before noon.\nThen it leaked a little. It was closed up\n"
        "again by somebody on the following day."
    )

    assert wrapped[:69] == _kept(wrapped, 88, tokenizer)


def test_a_table_is_kept_whole_where_that_costs_little(tokenizer: ModelTokenizer) -> None:
    """A cut that would run through a table close by goes in front of it; else between its rows."""
    long = f"{PROSE} {PROSE}\n\n"

    assert long.rstrip() == _kept(f"{long}{TABLE}", len(long) + 40, tokenizer)
    assert "| one | open |" == _kept(f"Short.\n\n{TABLE}", 59, tokenizer).splitlines()[-1]


def test_a_code_block_is_kept_whole_where_that_costs_little(tokenizer: ModelTokenizer) -> None:
    """Blank lines inside a code block are no paragraph's end."""
    long = f"{PROSE} {PROSE}\n\n"

    assert long.rstrip() == _kept(f"{long}{CODE}{PROSE}", len(long) + 25, tokenizer)


def test_what_only_announces_is_not_the_end(tokenizer: ModelTokenizer) -> None:
    """Neither a heading nor a line with a colon is left hanging."""
    for announcement in ("# Findings", "Findings\n========", "These are the findings:"):
        text = f"{PROSE}\n\n{announcement}\n\n"

        assert PROSE == _kept(f"{text}{PROSE}", len(text) + 6, tokenizer)


def test_a_word_s_end_is_the_last_resort(tokenizer: ModelTokenizer) -> None:
    """Where no sentence ends within half the budget, no word is broken."""
    assert "steady steady steady" == _kept("steady " * 100, 25, tokenizer)


def test_one_long_word_fills_the_budget(tokenizer: ModelTokenizer) -> None:
    """A word longer than half the budget is cut between graphemes rather than left out."""
    assert "one " + "e\u0301" * 10 == _kept("one " + "e\u0301" * 100, 25, tokenizer)


@pytest.mark.parametrize("is_fake", [False, True])
@given(parts=st.lists(st.sampled_from(GRAPHEMES), min_size=1, max_size=60), share=st.floats(0, 1))
def test_no_grapheme_is_broken(
    tokenizer: ModelTokenizer, is_fake: bool, parts: list[str], share: float
) -> None:
    """Accents stay with their letters, flags and families whole, unless one alone is too long."""
    text = "".join(parts)
    longest = max(map(len, parts))

    kept = _kept(text, max(1, int(share * len(text))), FakeTokenizer() if is_fake else tokenizer)

    assert text.startswith(kept)
    boundaries = {match.end() for match in regex.finditer(r"\X", text)}
    assert len(kept) in boundaries or len(kept) < longest


@given(
    lengths=st.lists(st.integers(1, 12), min_size=20, max_size=60), num_chars=st.integers(80, 200)
)
def test_at_most_half_is_left_unused(
    tokenizer: ModelTokenizer, lengths: list[int], num_chars: int
) -> None:
    """However the text is built, half the budget is used at least."""
    text = " ".join("Word. \n\n"[: length % 8] + "x" * length for length in lengths)
    tokens = tokenizer.encode_documents([text])[0]
    kept = tokenizer.encode_documents([_kept(text, num_chars, tokenizer)])[0]
    budget = tokenizer.encode_documents([text[:num_chars]])[0]
    assert tokens is not None
    assert kept is not None
    assert budget is not None

    assert len(kept) >= min(len(tokens), len(budget)) // 2 - 1
