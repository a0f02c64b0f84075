"""Bytes from anybody: what is no record, or would harm its reader, is refused with a reason."""

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill import wire
from docmill.errors import DecodeError, MessageError, UnsupportedSchema
from docmill.wire import Body, Header, Prepared, Record, Spec

RECORDS = (Body, Header, Prepared, Spec)


def _nested(depth: int) -> bytes:
    """Return a map of lists in lists, written by hand: packers refuse such depths."""
    return b"\x81\xa1x" + b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not msgpack"),
        (b"\x93\x01\x02\x03", "expected a map, got list"),
        (b"\x81\xa1x", "not msgpack"),
        (msgpack.packb({"v": 1}) + b"\x00", "not msgpack"),
        (msgpack.packb({"v": msgpack.ExtType(5, b"x")}), "extension type 5 is not allowed"),
        (msgpack.packb({"v": msgpack.Timestamp(1)}), "extension type -1 is not allowed"),
        (b"\x81\xa1x\xdd\xff\xff\xff\xff", "not msgpack"),
        (b"\xdf\xff\xff\xff\xff", "not msgpack"),
        (b"\x81\xa1x\xc6\xff\xff\xff\xff", "not msgpack"),
        (_nested(wire.MAX_DEPTH), "deep in each other"),
        (_nested(100_000), "not msgpack|deep in each other"),
        (b"\x28\xb5\x2f\xfd", "cut off"),
        (b"\x28\xb5\x2f\xfdgarbage", "not zstd|cut off"),
    ],
    ids=[
        *("empty", "list", "cut", "rest", "extension", "timestamp", "huge-list", "huge-map"),
        *("huge-bytes", "deep", "very-deep", "frame-start", "no-frame"),
    ],
)
def test_what_is_no_record_is_refused(data: bytes, why: str) -> None:
    """A reader gets one class of error, whatever the bytes are."""
    with pytest.raises(DecodeError, match=why):
        wire.unpack(data)


def test_what_is_just_within_the_limits_is_read() -> None:
    """The limits stop what harms, not what is large."""
    fields = {"x": list(range(wire.MAX_ITEMS))}

    assert wire.unpack(msgpack.packb(fields)) == fields
    assert wire.unpack(_nested(wire.MAX_DEPTH - 1))


def test_too_many_items_are_refused() -> None:
    """A list longer than any record has is refused before it is built."""
    with pytest.raises(DecodeError, match="not msgpack"):
        wire.unpack(msgpack.packb({"x": [0] * (wire.MAX_ITEMS + 1)}))


def test_a_frame_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that decompress to many are stopped at the limit."""
    data = Body(text="x" * 100_000).encode()

    assert len(data) < 200

    monkeypatch.setattr(wire, "MAX_RECORD_BYTES", 50_000)

    with pytest.raises(DecodeError, match="more than 50000 bytes"):
        Body.decode(data)


def test_a_large_body_is_compressed_and_a_small_one_is_not() -> None:
    """Compression is for bodies it pays for; both are read alike."""
    small, large = Body(text="one word"), Body(text="many words " * 1000)

    assert b"one word" in small.encode()
    assert len(large.encode()) < 500
    assert [Body.decode(body.encode()) for body in (small, large)] == [small, large]


@pytest.mark.parametrize("version", [None, 0, 3, "1", 2**63])
def test_an_unknown_version_is_told_from_garbage(version: Any) -> None:
    """A record of another version is refused as such, never guessed at."""
    with pytest.raises(UnsupportedSchema, match="this reader knows 1 and 2"):
        Body.decode(msgpack.packb({"v": version, "text": "answer"}))


@pytest.mark.parametrize("record", RECORDS, ids=lambda cls: cls.__name__)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(record: type[Record], data: bytes) -> None:
    """No bytes raise anything but our own errors."""
    with contextlib.suppress(MessageError):
        assert record.decode(data).encode()


@pytest.mark.parametrize("record", RECORDS, ids=lambda cls: cls.__name__)
@given(
    fields=st.dictionaries(
        st.sampled_from(
            (*Header.model_fields, *Prepared.model_fields, *Body.model_fields, "messages")
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=8), inner, max_size=3)
            ),
            max_leaves=4,
        ),
    )
)
def test_any_fields_are_read_or_refused(record: type[Record], fields: dict[str, Any]) -> None:
    """A map with the right version and any values raises nothing but our own errors."""
    with contextlib.suppress(MessageError):
        assert record.decode(msgpack.packb({"v": record.schema_version, **fields})).encode()
