"""Which earlier document is named as almost the same, and when its answer may serve."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.near import Match, NearIndex
from tests.support.cases import rows
from tests.support.near_pairs import Pair, pairs

WORDS = [f"word{number}" for number in range(5000)]


def _text(seed: int, num_words: int = 300) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=num_words))


def _with_typos(text: str, num: int, seed: int = 1) -> str:
    words = text.split()
    for at in random.Random(seed).sample(range(len(words)), num):
        words[at] += "x"
    return " ".join(words)


class Pile:
    """Documents looked up one after the other, in one job and one scope unless said otherwise."""

    def __init__(self, max_documents: int = 100) -> None:
        self.index = NearIndex(max_documents)

    def look(
        self,
        custom_id: str,
        text: str,
        *,
        scope: str = "scope",
        job_id: str = "job",
        fingerprint: str | None = None,
        reuse_from: float | None = None,
    ) -> Match | None:
        """Look a document up; its fingerprint is of its id unless given."""
        fingerprint = f"print of {custom_id}" if fingerprint is None else fingerprint
        return self.index.look(scope, text, custom_id, job_id, fingerprint, reuse_from=reuse_from)

    def named(self, custom_id: str, text: str, **fields: Any) -> str | None:
        """Return the id of the document that is named."""
        match = self.look(custom_id, text, **fields)
        return match.near.custom_id if match else None


def test_an_almost_equal_document_is_named() -> None:
    """The earlier document comes back with its ids, its fingerprint and how similar it is."""
    pile = Pile()
    pile.look("a", _text(1), job_id="first")
    match = pile.look("b", _with_typos(_text(1), 3), job_id="second")

    assert match is not None
    assert ("a", "first", False) == (match.near.custom_id, match.near.job_id, match.near.is_reused)
    assert ("print of a", False) == (match.fingerprint, match.is_reusable)
    assert 0.85 < match.near.similarity < 0.97  # 30 of 311 sequences differ


def test_the_most_similar_one_is_named() -> None:
    """Of several earlier documents the closest counts, whichever came last."""
    pile = Pile()
    pile.look("a", _with_typos(_text(1), 1))
    pile.look("b", _with_typos(_text(1), 6, seed=2))

    assert "a" == pile.named("c", _text(1))


def test_an_original_is_not_hidden_by_what_resembles_it() -> None:
    """A copy in another form is told its original, however many near ones came in between."""
    pile = Pile()
    pile.look("number", "Order 18 is here. " + _text(1))
    pile.look("original", "Order 17 is here. " + _text(1))
    for at in range(30):
        pile.look(f"typo {at}", "Order 17 is here. " + _with_typos(_text(1), 1, seed=at))
    match = pile.look("form", "ORDER 17  IS HERE! " + _text(1))

    assert match is not None
    assert ("original", 1.0) == (match.near.custom_id, match.near.similarity)


def test_an_original_is_not_hidden_by_what_is_half_alike() -> None:
    """What is too different to be named takes no place from it either."""
    pile = Pile(max_documents=300)
    pile.look("original", _text(1))
    for at in range(200):
        pile.look(f"other {at}", _with_typos(_text(1), 25, seed=at))

    assert "original" == pile.named("copy", _with_typos(_text(1), 1))


def test_members_of_a_large_family_are_told_apart() -> None:
    """Of forty documents that differ in a few words each, a copy is told the right one."""
    pile = Pile()
    for at in range(40):
        pile.look(str(at), _with_typos(_text(1), 3, seed=at))

    assert [str(at) for at in range(40)] == [
        pile.named(f"copy {at}", _with_typos(_text(1), 3, seed=at).upper()) for at in range(40)
    ]


def test_equal_documents_take_one_place() -> None:
    """Copies that share no answer are all told the first one, again when they come again."""
    pile = Pile()
    pile.look("a", _text(1), fingerprint="")

    assert ["a"] * 4 == [pile.named(name, _text(1), fingerprint="") for name in "bcbc"]
    assert 1 == len(pile.index)


def test_a_place_is_free_again_once_its_document_is_forgotten() -> None:
    """A copy of what was forgotten is remembered as the first of its kind."""
    pile = Pile(max_documents=2)
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        pile.look(name, _text(seed))

    assert pile.named("again", _text(1)) is None
    assert "again" == pile.named("copy", _with_typos(_text(1), 1))


def test_others_are_not_named() -> None:
    """What shares less than four fifths is not near, nor is what has no words."""
    pile = Pile()
    texts = [*(_text(seed) for seed in range(20)), _with_typos(_text(1), 25), "!?", "…"]

    assert [None] * len(texts) == [pile.named(str(at), text) for at, text in enumerate(texts)]


def test_scopes_never_meet() -> None:
    """Another tenant's equal document is not known here."""
    pile = Pile()
    pile.look("a", _text(1), scope="north")

    assert pile.named("b", _text(1), scope="south") is None
    assert "a" == pile.named("c", _text(1), scope="north")


def test_a_document_that_comes_again_does_not_meet_itself() -> None:
    """A second delivery tells what the first one told, and takes no place."""
    pile = Pile()
    pile.look("a", _text(1))

    assert pile.named("a", _text(1)) is None
    assert ["a", "a"] == [pile.named("b", _with_typos(_text(1), 2)) for _ in range(2)]
    assert 2 == len(pile.index)


def test_a_duplicate_is_no_near_duplicate() -> None:
    """What has the fingerprint of an earlier document is not named, and takes no place."""
    pile = Pile()
    pile.look("a", _text(1), fingerprint="same")

    assert pile.named("b", _text(1), fingerprint="same") is None
    assert 1 == len(pile.index)


def test_without_fingerprints_equal_documents_are_near() -> None:
    """Where answers are never shared, an equal document is named, and never reused."""
    pile = Pile()
    pile.look("a", _text(1), fingerprint="", reuse_from=0.8)
    match = pile.look("b", _text(1), fingerprint="", reuse_from=0.8)

    assert match is not None
    assert (1.0, False) == (match.near.similarity, match.is_reusable)


def test_short_documents_are_not_near_for_being_short() -> None:
    """Of thirteen short documents, only the copies are near, if nothing shares their answers."""
    pile = Pile()
    named = {
        row["custom_id"]: other
        for row in rows("d01_short_documents.jsonl")
        if (other := pile.named(row["custom_id"], row["text"], fingerprint="")) is not None
    }

    assert {"sd-10": "sd-1", "sd-11": "sd-4"} == named


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.name)
def test_labelled_pairs_are_near_and_reused_only_where_allowed(pair: Pair) -> None:
    """All pairs are told to be near; those that differ in a fact are never reused."""
    pile = Pile()
    pile.look("left", pair.left, reuse_from=0.6)
    match = pile.look("right", pair.right, reuse_from=0.6)

    assert match is not None
    assert pair.may_reuse == match.is_reusable


def test_an_answer_is_reused_from_the_asked_similarity_on() -> None:
    """The threshold decides, not that a document is named."""
    pile = Pile()
    text = "The pump is off. " + _text(1).replace("word", "w")
    pile.look("a", text, reuse_from=0.99)
    far = pile.look("b", text.replace("pump is", "pomp is"), reuse_from=0.999)
    near = pile.look("c", text.replace("pump is", "pompe is"), reuse_from=0.9)

    assert far is not None
    assert near is not None
    assert (False, True) == (far.is_reusable, near.is_reusable)


def test_what_may_be_reused_is_preferred() -> None:
    """A document with the same facts comes before a more similar one with others."""
    pile = Pile()
    lines = "\n".join(f"The pump of hall {name} runs well today." for name in "ABCDEFGHIJ")
    pile.look("same facts", lines.replace("runs well", "runs finely", 2), reuse_from=0.6)
    pile.look("more similar", lines.replace("hall J", "hall K"), reuse_from=0.6)
    match = pile.look("c", lines, reuse_from=0.6)

    assert match is not None
    assert ("same facts", True) == (match.near.custom_id, match.is_reusable)


def test_other_numbers_do_not_hide_what_may_be_reused() -> None:
    """Among hundreds of long documents that differ in a number alone, the same one is found."""
    pile = Pile(max_documents=1000)
    text = _text(1, 1000).replace("word", "w")
    for number in range(300):
        pile.look(str(number), f"Order {number} is here. {text}", reuse_from=0.8)
    match = pile.look("copy", f"Order 17 is heer. {text}", reuse_from=0.8)

    assert match is not None
    assert ("17", True) == (match.near.custom_id, match.is_reusable)


def test_reuse_does_not_drift() -> None:
    """All who reuse an answer resemble the document that it was given for."""
    pile = Pile()
    words = ["so"] + ["".join(random.Random(at).choices("bcdfg", k=6)) for at in range(200)]
    reused = []
    for step in range(40):
        text = "The " + " ".join(word + "q" * (at < 4 * step) for at, word in enumerate(words))
        match = pile.look(str(step), text, reuse_from=0.8)
        reused.append(match.near.custom_id if match and match.is_reusable else None)

    leaders = [str(step) for step, leader in enumerate(reused) if leader is None]
    assert 5 <= len(leaders) <= 20
    assert set(reused) <= {None, *leaders}


def test_what_was_of_use_last_is_kept() -> None:
    """The number of documents is bounded; one that is reused outlives others."""
    pile = Pile(max_documents=3)
    texts = {
        name: f"The {name} holds. " + _text(at).replace("word", "w")
        for at, name in enumerate("abcd")
    }
    for name in "abc":
        pile.look(name, texts[name], reuse_from=0.8)
    pile.look("copy", texts["a"].replace("holds", "hodls"), reuse_from=0.8)
    pile.look("d", texts["d"], reuse_from=0.8)

    assert 3 == len(pile.index)
    assert "a" == pile.named("again", texts["a"])
    assert pile.named("gone", texts["b"]) is None


def test_a_pile_of_forms_does_not_hide_a_near_duplicate() -> None:
    """Hundreds of documents that share most of their text leave the closest one to be found."""
    pile = Pile(max_documents=1000)
    form = _text(1, 200)
    for at in range(500):
        pile.look(str(at), f"{form} {_text(1000 + at, 60)}")

    assert ["7", "99"] == [
        pile.named(f"near {at}", f"{form} {_with_typos(_text(1000 + at, 60), 1)}") for at in (7, 99)
    ]


@pytest.mark.parametrize(("num_typos", "least"), [(2, 200), (4, 199)])
def test_near_duplicates_are_found(num_typos: int, least: int) -> None:
    """Of 200 documents of 300 words with a few typos, all or almost all are told."""
    pile = Pile(max_documents=1000)
    for seed in range(200):
        pile.look(str(seed), _text(seed))
    found = [pile.named(f"near {seed}", _with_typos(_text(seed), num_typos)) for seed in range(200)]

    assert sum(str(seed) == name for seed, name in enumerate(found)) >= least


@given(st.lists(st.text() | st.text(alphabet="ab .", max_size=30), max_size=8))
def test_any_texts_can_be_looked_up(texts: list[str]) -> None:
    """Whatever the characters: at most so many are kept, and similarities lie within bounds."""
    pile = Pile(max_documents=3)
    for at, text in enumerate(texts):
        match = pile.look(str(at), text, reuse_from=0.5)
        assert match is None or 0.5 <= match.near.similarity <= 1.0
        assert match is None or int(match.near.custom_id) < at

    assert len(pile.index) <= 3
