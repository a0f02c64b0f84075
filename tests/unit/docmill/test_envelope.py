"""What a submitted document looks like on the wire."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from docmill.envelope import Envelope, Envelopes, Terms
from docmill.errors import Reason
from docmill.intake import Document, Refusal
from docmill.request import SpecBook
from docmill.wire import Body, Header


def envelopes(**changes: Any) -> Envelopes:
    """Return a maker for a plain job."""
    terms: dict[str, Any] = {
        "job_id": "j",
        "tier": "batch",
        "deadline_at": None,
        "result_ttl_s": 60,
        "name": None,
        "waits_when_full": True,
        "max_document_bytes": 100,
    }
    return Envelopes(Terms(**{**terms, **changes}), SpecBook({"prompt": "P"}))


def header_of(envelope: Envelope) -> Header:
    """Return the header that an envelope carries."""
    return Header.decode(envelope.args[2 if envelope.script == "submit" else 1])


@given(
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.none() | st.floats(0, 2e9),
    st.none() | st.fixed_dictionaries({"file": st.just("f"), "line": st.integers(1, 10**9)}),
)
def test_headers_are_what_the_wire_record_writes(
    custom_id: str, deadline_at: float | None, source: dict[str, Any] | None
) -> None:
    """The header built by hand decodes to the record that it stands for."""
    envelope = envelopes(deadline_at=deadline_at).make(
        Document(custom_id, b"x", "cp1252", source=source), "document 1"
    )

    header = header_of(envelope)
    assert ("j", custom_id, deadline_at, source, "cp1252", "batch") == (
        header.job_id,
        header.custom_id,
        header.deadline_at,
        header.source,
        header.encoding,
        header.tier,
    )
    assert header == Header.decode(header.encode())
    assert envelope.args[4] == header.spec


def test_a_tenant_travels_with_each_document() -> None:
    """Also with those that were refused; without one the header does not grow."""
    named, unnamed = envelopes(tenant="north"), envelopes()
    document, refusal = Document("a", "x"), Refusal("b", Reason.BAD_LINE, "cut")

    assert "north" == header_of(named.make(document, "1")).tenant
    assert "north" == header_of(named.make(refusal, "2")).tenant
    assert b"tenant" not in unnamed.make(document, "1").args[2]


def test_a_spec_travels_once() -> None:
    """Later documents name it by its digest alone."""
    maker = envelopes()

    first, second = (maker.make(Document(name, "x"), name) for name in "ab")

    assert first.args[4] == second.args[4]
    assert (True, b"") == (bool(first.args[5]), second.args[5])
    assert first.args[1] != second.args[1]


def test_a_refusal_becomes_an_error_record() -> None:
    """Code, message and line go into the body."""
    refusal = Refusal("a", Reason.BAD_LINE, "what is wrong", {"file": "f", "line": 3})

    envelope = envelopes().make(refusal, "f:3")

    error = Body.decode(envelope.args[2]).error
    assert error is not None
    assert ("bad_line", "what is wrong", 3) == (error.code, error.message, error.line)
    assert {"file": "f", "line": 3} == header_of(envelope).source


def test_a_document_too_large_becomes_an_error_record() -> None:
    """Bytes count, not letters."""
    envelope = envelopes().make(Document("a", "é" * 51), "document 1")

    assert "reject" == envelope.script
    assert b"document 1: 102 bytes are more than the 100" in envelope.args[2]


def test_bad_options_become_an_error_record() -> None:
    """The parameter is named."""
    for options in ({"max_tokens": 0}, {"prompt": "x\ud800"}, {"messages": object()}):
        envelope = envelopes().make(Document("a", "x", options=options), "document 1")
        assert "reject" == envelope.script


def test_a_source_that_cannot_be_packed_is_no_obstacle() -> None:
    """A caller's own source never stops the submission."""
    envelope = envelopes().make(Document("a", "x", source={"at": object()}), "document 1")

    assert "reject" == envelope.script
    assert header_of(envelope).source is None


def test_a_duplicate_gets_an_id_of_its_own() -> None:
    """The record names both places; a refused duplicate keeps its own reason."""
    maker = envelopes()
    document = maker.make(Document("a", "x"), "f:9", "f:2")
    refused = maker.make(Refusal("a", Reason.BAD_LINE, "cut"), "f:10", "f:2")

    record = maker.duplicate(document)
    assert "a@f:9" == record.args[0]
    assert b"f:2 and f:9" in record.args[2]
    assert b"cut" in maker.duplicate(refused).args[2]
