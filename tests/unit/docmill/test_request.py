"""From a caller's arguments to specs."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import JobRejected
from docmill.intake.base import OPTIONS
from docmill.request import (
    SpecBook,
    build_spec,
    deadline_at,
    place_document,
    seconds,
)
from docmill.wire import Spec

#: What a line of JSON may hold.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("prompt", "pieces"),
    [
        ("Sum up: {document}!", ("Sum up: ", None, "!")),
        ("{document}", (None,)),
        ("{document} is it", (None, " is it")),
        ("Sum up.", ("Sum up.\n\n", None)),
        ("", (None,)),
        ("{other} {{x}}", ("{other} {{x}}\n\n", None)),
    ],
)
def test_the_prompt_says_where_the_document_goes(prompt: str, pieces: tuple[Any, ...]) -> None:
    """At the mark, else after a blank line; other braces mean nothing."""
    [message] = place_document(prompt, None)

    assert ("user", pieces) == (message.role, message.content)


def test_messages_take_the_document_at_the_mark_or_last() -> None:
    """Without a mark it follows the last user message, or is one where there is none."""
    system = {"role": "developer", "content": "Be brief"}
    user = {"role": "user", "content": "Sum up"}
    reply = {"role": "assistant", "content": "Sure: {document}"}

    assert [("system", ("Be brief",)), ("user", ("Sum up\n\n", None))] == [
        (m.role, m.content) for m in place_document(None, [system, user])
    ]
    assert [("system", ("Be brief",)), ("user", (None,))] == [
        (m.role, m.content) for m in place_document(None, [system])
    ]
    assert ("Sure: ", None) == place_document(None, [user, reply])[1].content


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ("text", "must be a list"),
        (["text"], r"messages\[0\] must be an object"),
        ([{"role": "robot", "content": "x"}], r"messages\[0\]\.role"),
        ([{"role": "user", "content": 5}], "content must be text"),
        ([{"role": "user", "content": "x", "name": "me"}], r"messages\[0\]\.name"),
        (
            [{"role": "user", "content": "{document}"}, {"role": "user", "content": "{document}"}],
            "2 times",
        ),
    ],
)
def test_malformed_messages_are_refused(messages: Any, words: str) -> None:
    """The message and its field are named."""
    with pytest.raises(JobRejected, match=words):
        place_document(None, messages)


def test_an_unknown_option_is_refused() -> None:
    """A typing error is not silently without effect."""
    with pytest.raises(JobRejected, match="unknown option 'max_token'"):
        build_spec({"prompt": "P", "max_token": 5})


def test_equal_questions_are_encoded_once() -> None:
    """A book gives one spec for equal options, whatever their order."""
    book = SpecBook({"prompt": "P", "max_tokens": 8})

    assert book.spec() is book.spec({}) is book.spec(None)
    assert book.spec({"seed": 1, "top_p": 0.5}) is book.spec({"top_p": 0.5, "seed": 1})
    assert book.spec({"seed": 1}).digest != book.spec().digest
    decoded = Spec.decode(book.spec({"seed": 1}).data)
    assert (8, 1) == (decoded.max_tokens, decoded.seed)
    assert decoded.digest() == book.spec({"seed": 1}).digest


def test_own_messages_replace_the_job_s_prompt() -> None:
    """A document asks either its own question or its job's."""
    book = SpecBook({"prompt": "Job"})

    spec = Spec.decode(book.spec({"messages": [{"role": "user", "content": "Own"}]}).data)

    assert ("Own\n\n", None) == spec.messages[0].content


def test_a_job_may_ask_messages() -> None:
    """Given for all documents, they are asked about each."""
    book = SpecBook({"messages": [{"role": "user", "content": "Sum up"}]})

    assert ("Sum up\n\n", None) == Spec.decode(book.spec().data).messages[0].content


def test_the_client_means_more_than_the_wire_assumes() -> None:
    """A long document ends at a boundary, and equal texts share; the wire's defaults are older."""
    spec = build_spec({"prompt": "P"})

    assert ("semantic", "text") == (spec.truncate, spec.dedup)
    wire = Spec(messages=spec.messages)
    assert ("head", "exact") == (wire.truncate, wire.dedup)


def test_parts_have_a_question_of_their_own() -> None:
    """What is asked about a split document's answers has a place for them."""
    spec = build_spec({"prompt": "P", "truncate": "split", "combine_prompt": "Join {document}."})

    assert ("Join ", None, ".") == spec.combine[0].content


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"combine_prompt": "Join"}, "truncate must be 'split' for it, got 'semantic'"),
        ({"combine_prompt": 5, "truncate": "split"}, "combine_prompt must be text"),
        ({"truncate": "tial"}, "truncate: Input should be 'refuse'"),
        ({"truncate": 5}, "truncate: Input should be"),
        ({"max_document_tokens": 0}, "max_document_tokens: .* greater than or equal to 1"),
        ({"dedup": "near"}, "dedup: Input should be 'off'"),
        ({"near_threshold": 0.2}, "near_threshold: .* greater than or equal to 0.5"),
        ({"near_threshold": 0.9, "dedup": "off"}, "which dedup='off' forbids"),
        ({"rules": "control_characters"}, "rules must map rules to policies, got str"),
        ({"rules": {"no_such": "flag"}}, "there is no rule 'no_such'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    """The parameter and the problem are named."""
    with pytest.raises(JobRejected, match=words):
        build_spec({"prompt": "P", **options})


@given(st.dictionaries(st.sampled_from(OPTIONS), JSON, max_size=4))
def test_whatever_a_document_asks_is_a_spec_or_refused(options: dict[str, Any]) -> None:
    """Lines come from anywhere: one costs itself, never the submission."""
    book = SpecBook({"prompt": "P", "truncate": "split", "combine_prompt": "Join"})
    try:
        spec = book.spec(options)
    except JobRejected:
        return

    assert spec.digest == Spec.decode(spec.data).digest()


def test_a_document_s_own_question_has_own_parts() -> None:
    """The job's way to combine belongs to the job's prompt, and to documents that are split."""
    book = SpecBook({"prompt": "P", "truncate": "split", "combine_prompt": "Join"})

    def combines(options: dict[str, Any]) -> bool:
        return bool(Spec.decode(book.spec(options).data).combine)

    assert combines({"max_tokens": 5})
    assert not combines({"prompt": "Own"})
    assert not combines({"truncate": "head"})


def test_a_document_s_policies_join_its_job_s() -> None:
    """Those for other rules stay; for the same rule the document's counts."""
    book = SpecBook({"prompt": "P", "rules": {"mojibake": "reject", "zero_width": "allow"}})

    spec = Spec.decode(book.spec({"rules": {"zero_width": "repair"}}).data)

    assert {"mojibake": "reject", "zero_width": "repair"} == spec.rules


def test_memory_for_specs_is_bounded() -> None:
    """Documents that all ask something else do not pile up."""
    book = SpecBook({"prompt": "P"})
    for number in range(5000):
        book.spec({"seed": number})

    assert len(book._known) <= 4096


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        (None, None),
        (90, NOW.timestamp() + 90),
        (timedelta(minutes=2), NOW.timestamp() + 120),
        (NOW + timedelta(hours=1), NOW.timestamp() + 3600),
        (
            datetime(2026, 11, 30, 14, 0, tzinfo=timezone(timedelta(hours=1))),
            NOW.timestamp() + 3600,
        ),
    ],
)
def test_a_deadline_is_a_moment(deadline: Any, expected: float | None) -> None:
    """However it is given: seconds, a duration, or a moment in any time zone."""
    assert expected == deadline_at(deadline, NOW)


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, "5", timedelta(0)])
def test_a_duration_is_a_positive_number(value: Any) -> None:
    """Anything else is refused by the parameter's name."""
    with pytest.raises(JobRejected, match="ttl must be more than 0"):
        seconds(value, "ttl")
