"""What is kept of documents that came by lately."""

from hypothesis import given
from hypothesis import strategies as st

from preprocess.seen import _ENTRY_BYTES, SeenDocuments


def _seen(max_entries: int) -> SeenDocuments[str]:
    """Return one with room for so many values of 100 bytes."""
    return SeenDocuments(max_entries * (100 + _ENTRY_BYTES))


def test_what_was_used_longest_ago_goes_first() -> None:
    """A value that was asked for outlives one that was put later."""
    seen = _seen(2)
    seen.put(b"a", "A", 100)
    seen.put(b"b", "B", 100)
    seen.get(b"a")
    seen.put(b"c", "C", 100)

    assert ["A", None, "C"] == [seen.get(key) for key in (b"a", b"b", b"c")]


def test_lookups_and_hits_are_counted() -> None:
    """Every question counts, and every one that had an answer."""
    seen = _seen(2)
    seen.put(b"a", "A", 100)
    for key in (b"a", b"b", b"a"):
        seen.get(key)

    assert (3, 2) == (seen.num_lookups, seen.num_hits)


def test_what_is_too_large_costs_no_other_its_place() -> None:
    """A value above the bound is not kept; the rest is."""
    seen = _seen(2)
    seen.put(b"a", "A", 100)
    seen.put(b"b", "B", 10_000)

    assert ["A", None] == [seen.get(key) for key in (b"a", b"b")]


def test_a_key_holds_its_last_value() -> None:
    """A value that is put again counts once."""
    seen = _seen(2)
    for value in ("A", "B", "C"):
        seen.put(b"a", value, 100)
    seen.put(b"b", "B", 100)

    assert ["C", "B"] == [seen.get(key) for key in (b"a", b"b")]


def test_no_room_keeps_nothing() -> None:
    """With a bound of zero every document is new."""
    seen = SeenDocuments[str](0)
    seen.put(b"a", "A", 0)

    assert seen.get(b"a") is None


@given(st.lists(st.tuples(st.binary(max_size=1), st.integers(0, 500))))
def test_it_never_holds_more_than_it_may(puts: list[tuple[bytes, int]]) -> None:
    """Whatever comes in which order, the sizes of what is kept stay within the bound."""
    seen = SeenDocuments[int](2000)
    for key, size_bytes in puts:
        seen.put(key, size_bytes, size_bytes)
    kept = [value for key in {key for key, _ in puts} if (value := seen.get(key)) is not None]

    assert sum(kept) + _ENTRY_BYTES * len(kept) <= 2000
    assert len(seen) == len(kept)
