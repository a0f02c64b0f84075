"""Where a text may be cut."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.breaks import MAX_UNIT_CHARS
from preprocess.outline import units
from tests.support.cpu_time import cpu_seconds

MARKUP = st.lists(
    st.sampled_from(
        [
            "A sentence. ",
            "word ",
            "\n",
            "\n\n",
            "# T\n",
            "|a|b|\n",
            "```\n",
            "=====\n",
            "- x\n",
            "。",
        ]
    ),
    max_size=60,
).map("".join)


def _texts(text: str) -> list[str]:
    return [text[unit.start : unit.end].strip() for unit in units(text)]


def _kinds(text: str) -> list[tuple[str, str]]:
    return [(unit.kind, unit.ends) for unit in units(text)]


@given(text=st.one_of(st.text(max_size=300), MARKUP))
def test_units_tile_the_text(text: str) -> None:
    """Whatever the text, its units follow one another without a gap up to the last thing seen."""
    found = units(text)

    ends = [unit.end for unit in found]
    assert [0, *ends][: len(found)] == [unit.start for unit in found]
    assert sorted(set(ends)) == ends
    assert len(text.rstrip()) == max(ends, default=0)
    for unit in found:
        assert 0 < len(text[unit.start : unit.end].strip()) <= MAX_UNIT_CHARS


def test_sentences_reach_over_wrapped_lines() -> None:
    """A line that ended at the width goes on in the next; a short one does not."""
    wrapped = (
        "The pump house has three valves, and all of them\n"
        "leak a little. Two are sealed with wax,\n"
        "which the inspector\nLast line"
    )

    expected = [
        "The pump house has three valves, and all of them\nleak a little.",
        "Two are sealed with wax,",
        "which the inspector",
        "Last line",
    ]
    assert expected == _texts(wrapped)


def test_log_lines_are_apart() -> None:
    """Lines that open like records are no wrapped prose, however long they are."""
    log = "\n".join(f"2026-11-0{day} the pump was started by hand again {day}" for day in range(4))

    assert 4 == len(_texts(log))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Smith came. He left.", ["Dr. Smith came.", "He left."]),
        ("It is 3.5 m, cf. Fig. 2 here. Next.", ["It is 3.5 m, cf. Fig. 2 here.", "Next."]),
        ("J. S. Bach died. Why? He was ill!", ["J. S. Bach died.", "Why?", "He was ill!"]),
        ('He said "no." Then (later) "yes."', ['He said "no."', 'Then (later) "yes."']),
        ("one e.g. two... and three", ["one e.g. two... and three"]),
        ("これは文です。次の文。「終わり。」", ["これは文です。", "次の文。", "「終わり。」"]),
        ("यह वाक्य है। दूसरा वाक्य।", ["यह वाक्य है।", "दूसरा वाक्य।"]),
        ("هل هذا سؤال؟ نعم.", ["هل هذا سؤال؟", "نعم."]),
    ],
)
def test_sentences_end_at_stops(text: str, sentences: list[str]) -> None:
    """Stops of many scripts end a sentence; those of abbreviations and figures do not."""
    assert sentences == _texts(text)


def test_blocks_are_told_apart() -> None:
    """Headings of three kinds, a table by rows, a code block as a whole, a list by items."""
    text = (
        "# One\nText. More.\n\nTwo\n===\n\nA short line\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "```\nx = 1\n\ny = 2\n```\n\n- first\n- second\n"
    )

    expected = [
        ("heading", "block"),
        ("text", "sentence"),
        ("text", "block"),
        ("heading", "block"),
        ("heading", "block"),
        *[("row", "sentence"), ("row", "sentence"), ("row", "block")],
        ("code", "block"),
        *[("text", "sentence"), ("text", "block")],
    ]
    assert expected == _kinds(text)


def test_a_code_block_left_open_reaches_to_the_end() -> None:
    """As Markdown has it."""
    assert [("text", "block"), ("code", "block")] == _kinds("Text.\n\n~~~\nx\n\ny")


def test_long_units_are_cut_at_words() -> None:
    """What has no boundary of its own gets one at a word, and a unit is never over the limit."""
    text = "steady " * 2000

    assert all(text[unit.end - 1] == "y" or text[unit.end - 1] == " " for unit in units(text))
    assert len(units(text)) <= 2 * len(text) // MAX_UNIT_CHARS


def test_a_flood_of_lines_is_held_in_slabs() -> None:
    """A million line breaks make thousands of units, not a million."""
    assert len(units("|\n" * 1_000_000)) <= 2100


@pytest.mark.parametrize(
    "run",
    ["a", " ", ".", ".)", '."', "A. ", "|\n", "# a\n", "```\n", "~\n", "e\u0301", "ไทย", "。"],
)
def test_it_takes_linear_time(run: str) -> None:
    """Four times the text takes about four times as long, whatever is repeated."""
    texts = (run * (num_chars // len(run)) for num_chars in (40_000, 160_000))
    short, long = (cpu_seconds(partial(units, text)) for text in texts)

    assert long < 12 * short + 0.05
