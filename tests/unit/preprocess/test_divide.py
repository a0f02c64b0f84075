"""Documents in parts, and the answers to them in one text again."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import Reason
from docmill.wire import Failure, Message, Spec
from preprocess import template
from preprocess.base import Tokenizer
from preprocess.divide import MAX_PARTS, combine_spec, groups, part_spec, parts
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.tokenizer import ModelTokenizer

SENTENCES = [f"Sentence number {number} says a thing." for number in range(400)]
SPEC = Spec(
    messages=(
        Message(role="system", content=("Answer in French.",)),
        Message(role="user", content=("What is said in ", None, " about pumps?")),
    ),
    max_tokens=77,
    temperature=0.5,
    truncate="split",
    max_document_tokens=500,
    near_threshold=0.9,
    rules={"mojibake": "repair"},
)


def _divide(text: str, part_len: int, tokenizer: Tokenizer) -> tuple[str, ...] | Failure:
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None
    return parts(text, tokens, part_len, tokenizer)


def _parts(text: str, part_len: int, tokenizer: Tokenizer) -> tuple[str, ...]:
    found = _divide(text, part_len, tokenizer)
    assert not isinstance(found, Failure), found
    return found


def _length(text: str, tokenizer: Tokenizer) -> int:
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None
    return len(tokens)


def test_parts_are_whole_sentences(tokenizer: ModelTokenizer) -> None:
    """Each begins and ends with a sentence, and none is lost."""
    found = _parts(" ".join(SENTENCES), 500, tokenizer)

    assert all(part.startswith("Sentence") and part.endswith("thing.") for part in found)
    assert all(any(sentence in part for part in found) for sentence in SENTENCES)


def test_parts_overlap_a_little(tokenizer: ModelTokenizer) -> None:
    """The last sentence of a part is told again in the next, and hardly more."""
    text = " ".join(SENTENCES)
    found = _parts(text, 500, tokenizer)

    for part, following in pairwise(found):
        assert part.split(". ")[-1].rstrip(".") in following
    assert len(text) < sum(map(len, found)) < 1.1 * len(text)


def test_parts_are_of_about_equal_length(tokenizer: ModelTokenizer) -> None:
    """A document a little longer than a part makes two halves, not a whole and a scrap."""
    text = " ".join(SENTENCES)
    found = _parts(text, int(0.95 * _length(text, tokenizer)), tokenizer)

    assert 2 == len(found)
    assert min(map(len, found)) > 0.35 * len(text)


def test_words_are_whole_where_no_sentence_ends(tokenizer: ModelTokenizer) -> None:
    """A text without stops overlaps by words."""
    found = _parts("steady " * 600, 300, tokenizer)

    assert {"steady"} == {word for part in found for word in part.split()}
    assert sum(len(part.split()) for part in found) > 600


@pytest.mark.parametrize("is_fake", [False, True])
@given(
    pieces=st.lists(
        st.sampled_from(
            ["A sentence. ", "Word ", "\n\n", "# T\n", "あい。", "🇩🇪", "e\u0301", "    "]
        ),
        min_size=1,
        max_size=25,
    ),
    part_len=st.integers(1, 40),
)
def test_any_text_makes_parts_that_fit(
    tokenizer: ModelTokenizer, is_fake: bool, pieces: list[str], part_len: int
) -> None:
    """Every part alone has at most its tokens, and together they hold all there is to see."""
    subject: Tokenizer = FakeTokenizer() if is_fake else tokenizer
    # a character of its own tells where each piece is
    text = "".join(f"{chr(0x4E00 + number)}{piece}" for number, piece in enumerate(pieces))

    found = _divide(text, part_len, subject)

    if isinstance(found, Failure):
        assert part_len < 16
        return
    assert all(part and _length(part, subject) <= part_len for part in found)
    marks = [mark for part in found for mark in part if "\u4e00" <= mark < "\u4e50"]
    assert [chr(0x4E00 + number) for number in range(len(pieces))] == list(dict.fromkeys(marks))


def test_too_many_parts_are_refused(tokenizer: ModelTokenizer) -> None:
    """A document of a million tokens in parts of a few is nothing that anybody meant."""
    found = _divide("steady " * 20_000, 10, tokenizer)

    assert isinstance(found, Failure)
    assert Reason.TOO_LONG == found.code
    assert f"more than {MAX_PARTS:,} parts of 10 tokens" in found.message


def test_parts_below_a_character_are_refused(tokenizer: ModelTokenizer) -> None:
    """The reason names the length, and what to change."""
    found = _divide("\U0001f6f0 \U0001f6f0", 2, tokenizer)

    assert isinstance(found, Failure)
    assert Reason.CONTEXT_TOO_SMALL == found.code
    assert "a part of 2 tokens" in found.message


def test_parts_are_asked_the_same() -> None:
    """All that decides an answer stays, and nothing divides or cuts a part again."""
    spec = part_spec(SPEC)

    assert (SPEC.messages, 77, 0.5) == (spec.messages, spec.max_tokens, spec.temperature)
    assert SPEC.rules == spec.rules
    assert ("head", (), None, None) == (
        spec.truncate,
        spec.combine,
        spec.max_document_tokens,
        spec.near_threshold,
    )


def test_answers_are_combined_as_the_request_says() -> None:
    """Who says how gets just that."""
    own = (Message(role="user", content=("Merge:\n", None)),)

    spec = combine_spec(SPEC.model_copy(update={"combine": own}))

    assert own == spec.messages
    assert (77, "refuse", ()) == (spec.max_tokens, spec.truncate, spec.combine)


def test_else_the_request_is_quoted(tokenizer: ModelTokenizer) -> None:
    """System messages stay, the rest is quoted, and the answers have one place."""
    system, user = combine_spec(SPEC).messages

    assert SPEC.messages[0] == system
    before, place, behind = user.content
    assert before is not None
    assert behind is not None
    assert "<request>\nWhat is said in [the document] about pumps?\n</request>" in before
    assert place is None
    assert "Combine them into one answer" in behind
    assert len(template.build(combine_spec(SPEC), tokenizer, datetime.now(UTC))) > 0


def test_examples_in_a_request_are_quoted_with_their_roles() -> None:
    """What an assistant is shown to have said is told apart from what is asked."""
    examples = (
        Message(role="user", content=("A text.",)),
        Message(role="assistant", content=("A summary.",)),
        Message(role="user", content=(None,)),
    )

    (user,) = combine_spec(Spec(messages=examples)).messages

    assert user.content[0] is not None
    assert "A text.\n\nassistant: A summary.\n\n[the document]" in user.content[0]


def test_answers_that_fit_make_one_text(tokenizer: ModelTokenizer) -> None:
    """Each with its number, in order."""
    expected = "Part 1 of 2:\nThree valves.\n\nPart 2 of 2:\nTwo pumps."

    assert (expected,) == groups(["Three valves.\n", " Two pumps."], 500, tokenizer)


def test_answers_that_do_not_fit_make_several(tokenizer: ModelTokenizer) -> None:
    """Each text holds as many consecutive answers as fit; none is lost."""
    found = groups([f"answer {number}." for number in range(20)], 100, tokenizer)

    assert not isinstance(found, Failure)
    assert 1 < len(found) < 20
    assert all(_length(text, tokenizer) <= 100 for text in found)
    assert [f"answer {number}." for number in range(20)] == [
        line for text in found for line in text.splitlines() if line.startswith("answer")
    ]


@pytest.mark.parametrize("answers", [["word " * 100, "word " * 100], ["word " * 500, "a", "b"]])
def test_answers_that_never_fit_are_refused(tokenizer: ModelTokenizer, answers: list[str]) -> None:
    """Where no round of combining would get any further, the reason is told instead."""
    found = groups(answers, 200, tokenizer)

    assert isinstance(found, Failure)
    assert Reason.TOO_LONG == found.code


@given(
    answers=st.lists(st.text(alphabet="ab .\n", max_size=80), min_size=1, max_size=12),
    room_len=st.integers(1, 120),
)
def test_groups_always_get_further(
    tokenizer: ModelTokenizer, answers: list[str], room_len: int
) -> None:
    """Fewer texts than answers, each of which fits; or a reason."""
    found = groups(answers, room_len, tokenizer)

    if not isinstance(found, Failure):
        assert len(found) < max(2, len(answers))
        assert all(_length(text, tokenizer) <= room_len for text in found)
