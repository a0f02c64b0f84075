"""Dead letters as they are read, whatever somebody has written there."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.dead import DeadLetter
from docmill.wire import Header, Prepared

HEADER = Header(
    request_id="r-1",
    job_id="j",
    custom_id="a",
    spec="s",
    submitted_at=1.5,
    source={"file": "f", "line": 3},
)
ENTRY = {
    b"i": b"r-1",
    b"j": b"j",
    b"h": HEADER.encode(),
    b"b": b"7",
    b"n": b"3",
    b"stream": b"{dm:x:0}:ready:v:batch:0",
    b"consumer": b"host-1-ab",
    b"reason": b"delivery_limit",
    b"error": "its worker died 3 times, é".encode(),
    b"trace": b"0123456789ab",
    b"result": b"5-0",
    b"history": b"first line\nsecond line",
}


def read(found: dict[bytes, bytes]) -> DeadLetter:
    """Read a letter with these fields."""
    return DeadLetter.from_wire(b"1796024866123-0", found)


def test_a_letter_tells_all_that_is_known() -> None:
    """Whose document, what went wrong, who had it, when, and what came before."""
    letter = read(ENTRY | {b"size": b"70"})

    assert ("j", "a", "r-1") == (letter.job_id, letter.custom_id, letter.request_id)
    assert ("delivery_limit", "its worker died 3 times, é", "0123456789ab") == (
        letter.code,
        letter.message,
        letter.trace,
    )
    assert (3, "host-1-ab", "{dm:x:0}:ready:v:batch:0", 70) == (
        letter.deliveries,
        letter.consumer,
        letter.stream,
        letter.size,
    )
    assert (1796024866.123, 1.5) == (letter.at, letter.submitted_at)
    assert {"file": "f", "line": 3} == letter.source
    assert ("first line", "second line") == letter.history
    assert (None, ()) == (letter.payload, letter.tokens)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {b"anything": b"\xff"},
        {b"h": b"\x81\xa1v\x63", b"n": b"many", b"reason": b"\xff", b"size": b""},
        {b"h": b"not msgpack", b"p": b"", b"history": b"\xff\n"},
    ],
)
def test_what_cannot_be_read_is_empty(found: dict[bytes, bytes]) -> None:
    """A letter that is none is still one: its id and moment are there, the rest is empty."""
    letter = read(found)

    assert ("1796024866123-0", "", "", 0, 0) == (
        letter.id,
        letter.custom_id,
        letter.job_id,
        letter.deliveries,
        letter.size,
    )
    assert () == letter.tokens
    json.dumps(letter.to_dict())


@given(
    found=st.dictionaries(st.sampled_from(sorted(ENTRY)) | st.just(b"?"), st.binary()),
    payload=st.dictionaries(st.sampled_from([b"d", b"p"]), st.binary()),
)
def test_anything_can_be_read(found: dict[bytes, bytes], payload: dict[bytes, bytes]) -> None:
    """No entry, however odd, keeps the others from being listed."""
    letter = read(found | payload)

    assert "1796024866123-0" == letter.id
    json.dumps(letter.to_dict() | {"tokens": letter.tokens})
    assert letter.payload == payload.get(b"d", payload.get(b"p"))


def test_the_fields_tell_whose_letter_it_is_without_a_header() -> None:
    """A header of another version leaves job and request readable."""
    letter = read(ENTRY | {b"h": b"\x81\xa1v\x63"})

    assert ("j", "r-1", "", None) == (
        letter.job_id,
        letter.request_id,
        letter.custom_id,
        letter.source,
    )


def test_a_document_is_the_payload() -> None:
    """What died on its way in has its bytes as they were submitted."""
    letter = read(ENTRY | {b"d": b"text \xff"})

    assert (b"text \xff", False, 6, ()) == (
        letter.payload,
        letter.is_prepared,
        letter.size,
        letter.tokens,
    )


def test_a_prepared_prompt_is_the_payload() -> None:
    """What died in an engine has the token ids that the engine got."""
    record = Prepared(tokens=struct.pack("<3I", 1, 2, 70000), max_tokens=5).encode()

    letter = read(ENTRY | {b"p": record})

    assert ((1, 2, 70000), True) == (letter.tokens, letter.is_prepared)
    assert record == letter.payload


def test_the_payload_stays_out_of_texts() -> None:
    """Neither a program's listing nor a debugger's line holds the document."""
    letter = read(ENTRY | {b"d": b"secret"})

    assert "secret" not in repr(letter)
    assert "secret" not in json.dumps(letter.to_dict())
