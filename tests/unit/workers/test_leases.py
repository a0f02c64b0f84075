"""The window of leases: what waits, what was taken, and what is held."""

import threading

import numpy as np
import pytest

from docmill.errors import DecodeError, UnsupportedSchema
from docmill.wire import Header, Prepared
from workers.batching import LULL_S, Limits
from workers.leases import Lease, Window, open_entry
from workers.streams import Entry

HEADER = Header(request_id="r", job_id="j", custom_id="c", spec="s", submitted_at=1.0)
PREPARED = Prepared(
    tokens=np.arange(5, dtype="<u4").tobytes(), max_tokens=3, seed=9, stop=("x",), prefix_len=2
)
FIELDS = {
    b"i": b"r",
    b"j": b"j",
    b"h": HEADER.encode(),
    b"b": b"1",
    b"n": b"1",
    b"p": PREPARED.encode(),
    b"f": b"",
}


def _lease(number: int, deliveries: bytes = b"1") -> Lease:
    return open_entry(Entry("s", f"{number}-0", FIELDS | {b"n": deliveries}))


@pytest.fixture
def window() -> Window:
    """A window whose batches form at once."""
    return Window(Limits(max_rows=4, max_batch_tokens=100, max_wait_s=0.0))


def test_an_entry_becomes_a_row() -> None:
    """The engine gets the tokens and how to sample, under a name of its own."""
    lease = _lease(7)
    row = lease.row()

    assert (lease.header, lease.prepared) == (HEADER, PREPARED)
    assert row.row_id == "s/7-0"
    assert list(row.prompt) == [0, 1, 2, 3, 4]
    assert (row.prefix_len, row.sampling.max_tokens, row.sampling.seed) == (2, 3, 9)
    assert row.sampling.stop == ("x",)
    assert lease.num_tokens == 8
    assert lease.named((b"i", b"b")) == ["s", "7-0", b"r", b"1"]


def test_missing_fields_are_named() -> None:
    """An entry that is no ready entry says what it lacks."""
    with pytest.raises(DecodeError, match=r"lacks the fields b, f, h, i, j, n$"):
        open_entry(Entry("s", "1-0", {b"p": b""}))


@pytest.mark.parametrize("tokens", [b"", b"12345"], ids=["empty", "odd"])
def test_tokens_must_be_whole(tokens: bytes) -> None:
    """Bytes that are no prompt are refused."""
    prepared = Prepared(tokens=tokens, max_tokens=1).encode()

    with pytest.raises(DecodeError, match="not a prompt"):
        open_entry(Entry("s", "1-0", FIELDS | {b"p": prepared}))


def test_other_versions_are_refused() -> None:
    """A record of another schema version is told apart from garbage."""
    with pytest.raises(UnsupportedSchema):
        open_entry(Entry("s", "1-0", FIELDS | {b"h": b"\x81\xa1v\x02"}))


def test_rows_are_taken_once(window: Window) -> None:
    """What a batch took does not wait any more, but is held until it is released."""
    leases = [_lease(number) for number in range(6)]
    window.add(0, 1, leases)
    batch = window.next_batch(0.0)

    assert batch is not None
    assert [row.item for row in batch.rows] == leases[:4]
    assert window.depth(0, 1) == 2
    assert window.num_held() == 6
    assert window.holds("s", "0-0")

    window.release([("s", "0-0")])

    assert not window.holds("s", "0-0")
    assert window.held() == leases[1:]


def test_what_was_delivered_before_runs_alone(window: Window) -> None:
    """The number of deliveries that the entry tells reaches the batch."""
    window.add(0, 1, [_lease(1), _lease(2, b"2"), _lease(3)])
    batches = [window.next_batch(0.0) for _ in range(2)]

    assert [["1-0", "3-0"], ["2-0"]] == [
        [row.item.entry_id for row in batch.rows] for batch in batches if batch is not None
    ]


def test_what_is_out_is_neither_waiting_nor_released(window: Window) -> None:
    """Leases count as out from being taken until their results are written."""
    window.add(0, 1, [_lease(number) for number in range(6)])
    seen = [window.num_out()]
    window.next_batch(0.0)
    seen.append(window.num_out())
    window.release([("s", "0-0"), ("s", "1-0")])

    assert [0, 4, 2] == [*seen, window.num_out()]


def test_a_lone_row_does_not_wait_on_an_idle_system() -> None:
    """The engine rests while it asks in vain, and works again from its next batch on."""
    now = 0.0
    window = Window(Limits(max_rows=4, max_batch_tokens=100, max_wait_s=5.0), clock=lambda: now)

    assert window.next_batch(0.0) is None

    now = 1.0
    window.add(0, 1, [_lease(1)])

    assert window.next_batch(0.0) is not None

    window.add(0, 1, [_lease(2)])
    now += LULL_S / 2

    assert window.next_batch(0.0) is None  # the batch has just ended, so more may be on its way

    now += LULL_S

    assert window.next_batch(0.0) is not None


def test_rows_put_back_wait_again(window: Window) -> None:
    """A batch that could not be started changes nothing."""
    window.add(0, 1, [_lease(1)])
    batch = window.next_batch(0.0)

    assert batch is not None
    assert window.next_batch(0.0) is None

    window.put_back(0, batch.rows)

    assert window.next_batch(0.0) == batch


def test_what_waits_can_be_taken_away(window: Window) -> None:
    """Handing back finds what waits and nothing else."""
    window.add(0, 1, [_lease(number) for number in range(5)])
    window.next_batch(0.0)

    assert [lease.entry_id for lease in window.take_waiting()] == ["4-0"]
    assert window.next_batch(0.0) is None
    assert window.depth(0, 1) == 0


def test_refills_respect_what_runs(window: Window) -> None:
    """Rows join up to the limits left by what runs."""
    window.add(0, 1, [_lease(number) for number in range(3)])
    taken = window.refill(0, num_rows=3, num_tokens=24, num_served=3)

    assert [row.item.entry_id for row in taken] == ["0-0"]
    assert window.refill(0, num_rows=2, num_tokens=96, num_served=3) == ()


def test_a_waiting_engine_is_woken(window: Window) -> None:
    """Rows that arrive while the engine waits are taken without delay."""
    batches = []
    engine = threading.Thread(target=lambda: batches.append(window.next_batch(10.0)))
    engine.start()
    window.add(0, 0, [_lease(1)])
    engine.join(5)

    assert len(batches) == 1


def test_a_reader_is_woken_when_room_comes_up(window: Window) -> None:
    """Taking rows wakes who waits for room, also when it happens just before the waiting."""
    window.add(0, 0, [_lease(1)])
    seen = window.num_taken
    window.next_batch(0.0)
    reader = threading.Thread(target=window.wait_until_taken, args=(seen, 10.0))
    reader.start()
    reader.join(5)

    assert not reader.is_alive()
