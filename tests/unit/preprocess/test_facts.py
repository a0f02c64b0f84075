"""Which differences of two documents forbid that one's answer serves the other."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.canonical import canonical
from preprocess.facts import facts
from tests.support.cpu_time import cpu_seconds
from tests.support.near_pairs import Pair, pairs


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.name)
def test_labelled_pairs(pair: Pair) -> None:
    """A changed number, name, date or denial is told; another form, typo or footer is not one."""
    assert pair.may_reuse == (facts(canonical(pair.left)) == facts(canonical(pair.right)))


def test_the_labelled_set_covers_what_it_should() -> None:
    """Enough pairs of each kind that must never pass, and of those that may."""
    kinds = Counter(pair.kind for pair in pairs() if not pair.may_reuse)
    num_allowed = sum(pair.may_reuse for pair in pairs())

    assert {"number", "name", "date", "denial"} == set(kinds)
    assert min(kinds.values()) >= 7
    assert num_allowed >= 50


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("It fell to -5 degrees.", "It fell to 5 degrees."),
        ("Take .5 of it.", "Take 5 of it."),
        ("It is 5' long.", 'It is 5" long.'),
        ("It got a B- from us.", "It got a B from us."),
        ("Written in C# by hand.", "Written in C by hand."),
        ("Where x < 5 holds.", "Where x > 5 holds."),
        ("See x2 for this.", "See y2 for this."),
        ("Version ½ of it.", "Version ¼ of it."),
        ("It is ✓ now.", "It is ✗ now."),
        ("Ask bob@here.org first.", "Ask rob@here.org first."),
        ("Open www.one.org/a first.", "Open www.one.org/b first."),
        ("Berlin is far away.", "London is far away."),
        ("They met bob. bob left.", "They met tom. tom left."),
        ("To do:\n- call bob", "To do:\n- call tom"),
        ("Guest\nname bob", "Guest\nname tom"),
        ("It costs twenty-one in all.", "It costs twenty-two in all."),
        ("It isn't there.", "It is there."),
        ("A then B.", "B then A."),
        ("Use the iPad there.", "Use the iPod there."),
        ("Docker的使用", "Podman的使用"),
        ("It is in chapter iv of it.", "It is in chapter vi of it."),
        ("It is in part b of it.", "It is in part c of it."),
        (
            "Those who came to see the large new hall:\nbob",
            "Those who came to see the large new hall:\ntom",
        ),
        ('{"name": "bob"}', '{"name": "tom"}'),
        ("Name,town\nbob,bath", "Name,town\ntom,bath"),
    ],
)
def test_small_signs_count(left: str, right: str) -> None:
    """Signs, units, marks, addresses and names in places without capitals are told apart."""
    assert facts(left) != facts(right)


WORDS = st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
CAPITALS = st.from_regex(re.compile(r"[A-ZÄÖÉŁ][a-zäöéł]{2,8}"), fullmatch=True)
NUMBERS = st.from_regex(re.compile(r"-?[0-9]{1,6}([.,:/][0-9]{1,4})?( ?%)?"), fullmatch=True)


@given(
    st.lists(WORDS, min_size=1), st.lists(WORDS, min_size=1), CAPITALS | NUMBERS, CAPITALS | NUMBERS
)
def test_no_change_of_a_number_or_name_is_missed(
    before: list[str], after: list[str], one: str, other: str
) -> None:
    """Inside a sentence, a number or name put in place of another changes the facts."""
    start, end = f"The {' '.join(before)}", f"{' '.join(after)}."

    same = facts(f"{start} {one} {end}") == facts(f"{start} {other} {end}")
    assert same == (one == other)


@given(st.text())
def test_any_text_has_facts(text: str) -> None:
    """Whatever the characters: 16 bytes, which spaces at line ends do not change."""
    spaced = canonical(text).replace("\n", " \n")

    assert 16 == len(facts(canonical(text)))
    assert facts(canonical(text)) == facts(spaced) or " " in text


@pytest.mark.parametrize(
    "unit",
    ["-", ".", "('", "a-", ".)", "a'", "x", "1", "今", "。今", '"', "\n", " a", "- a\n", "A."],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """Hundreds of thousands of the same signs are over in a moment."""
    assert cpu_seconds(lambda: facts(unit * (200_000 // len(unit)) + "!a"), runs=1) < 2
