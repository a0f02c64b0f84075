"""Reading shared streams from a real Redis, through losses of group, entry and connection."""

import threading
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from docmill import connection
from docmill.errors import BrokerUnavailable
from docmill.keys import GROUP, Keys
from workers.streams import Entry, Outage, StreamReader, ensure_groups, insist


@pytest.fixture
def streams(keys: Keys) -> list[str]:
    """The two streams under test."""
    return [keys.intake("interactive"), keys.intake("batch")]


@pytest.fixture
def waits() -> list[float]:
    """The delays that were waited."""
    return []


@pytest.fixture
def reader(redis_client: Any, streams: list[str], waits: list[float]) -> StreamReader:
    """A reader that does not really wait."""
    return StreamReader(redis_client, "c1", streams, outage=Outage(waits.append))


def test_entries_come_with_stream_id_and_fields(
    reader: StreamReader, redis_client: Any, streams: list[str]
) -> None:
    """A reader returns what was added before and after its group existed, urgent streams first."""
    second = redis_client.xadd(streams[1], {"i": "2"}).decode()
    first = redis_client.xadd(streams[0], {"i": "1"}).decode()

    assert [
        Entry(streams[0], first, {b"i": b"1"}),
        Entry(streams[1], second, {b"i": b"2"}),
    ] == reader.read(10, block_ms=1)


def test_nothing_to_read_is_an_empty_answer(reader: StreamReader, waits: list[float]) -> None:
    """An idle stream gives nothing, and that is no failure."""
    assert reader.read(10, block_ms=1) == []
    assert waits == []


def test_only_the_named_streams_are_read(
    reader: StreamReader, redis_client: Any, streams: list[str]
) -> None:
    """A reader told to read one of its streams leaves the others' entries to others."""
    redis_client.xadd(streams[0], {"i": "1"})
    entry_id = redis_client.xadd(streams[1], {"i": "2"}).decode()

    entries = reader.read(10, streams=[streams[1]], block_ms=1)

    assert [entry_id] == [entry.entry_id for entry in entries]


def test_lost_groups_are_created_again(
    reader: StreamReader, redis_client: Any, streams: list[str], waits: list[float]
) -> None:
    """A reader whose streams were wiped waits once and then goes on."""
    reader.read(1, block_ms=1)
    redis_client.delete(*streams)

    assert reader.read(1, block_ms=1) == []
    assert len(waits) == 1

    redis_client.xadd(streams[1], {"i": "1"})

    assert len(reader.read(1, block_ms=1)) == 1


def test_what_a_lost_reply_delivered_is_read_after_all(
    reader: StreamReader, redis_client: Any, streams: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry delivered in a reply that never arrived is found by the next read."""
    reader.read(1, block_ms=1)
    entry_id = redis_client.xadd(streams[1], {"i": "1"}).decode()
    genuine = redis_client.xreadgroup

    def deliver_and_break(*args: Any) -> None:
        genuine(*args)
        raise redis.ConnectionError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(redis_client, "xreadgroup", deliver_and_break)

        assert reader.read(1, block_ms=1) == []

    assert [entry_id] == [entry.entry_id for entry in reader.read(1, block_ms=1)]
    assert reader.read(1, block_ms=1) == []


def test_what_the_worker_holds_is_not_given_twice(
    redis_client: Any, streams: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure, pending entries that the worker still works on stay where they are."""
    held: set[tuple[str, str]] = set()
    reader = StreamReader(
        redis_client,
        "c1",
        streams,
        outage=Outage(lambda delay_s: None),
        holds=lambda stream, entry_id: (stream, entry_id) in held,
    )
    redis_client.xadd(streams[0], {"i": "1"})
    held.update((entry.stream, entry.entry_id) for entry in reader.read(5, block_ms=1))

    def fail(*args: Any) -> None:
        raise redis.ConnectionError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(redis_client, "xreadgroup", fail)
        reader.read(5, block_ms=1)

    assert reader.read(5, block_ms=1) == []


def test_entries_deleted_while_pending_are_let_go(
    reader: StreamReader, redis_client: Any, streams: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pending entry that somebody deleted is acknowledged, not returned without fields."""
    redis_client.xadd(streams[0], {"i": "1"})
    (entry,) = reader.read(5, block_ms=1)
    redis_client.xdel(streams[0], entry.entry_id)

    def fail(*args: Any) -> None:
        raise redis.ConnectionError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(redis_client, "xreadgroup", fail)
        reader.read(5, block_ms=1)

    assert reader.read(5, block_ms=1) == []
    assert redis_client.xpending(streams[0], GROUP)["pending"] == 0


def test_an_unusable_key_is_not_mistaken_for_an_outage(redis_client: Any, keys: Keys) -> None:
    """A key of another type raises: waiting would not help."""
    redis_client.set(keys.intake("batch"), "not a stream")
    reader = StreamReader(
        redis_client, "c1", [keys.intake("batch")], outage=Outage(lambda delay_s: None)
    )

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        reader.read(1, block_ms=1)


def test_existing_groups_are_left_alone(redis_client: Any, streams: list[str]) -> None:
    """Creating the groups twice keeps what was delivered."""
    ensure_groups(redis_client, streams)
    redis_client.xadd(streams[0], {"i": "1"})
    redis_client.xreadgroup(GROUP, "c1", {streams[0]: ">"})

    ensure_groups(redis_client, streams)

    assert redis_client.xpending(streams[0], GROUP)["pending"] == 1


def test_a_redis_that_is_away_is_waited_for_without_a_busy_loop(waits: list[float]) -> None:
    """Reads without a server return nothing and wait longer and longer, up to a bound."""
    client = connection.connect("unix:///nonexistent/redis.sock")
    reader = StreamReader(client, "c1", ["s"], outage=Outage(waits.append))

    assert [entry for _ in range(12) for entry in reader.read(1)] == []
    assert waits[0] <= 0.05
    assert 1.0 <= waits[-1] <= 2.0


def test_an_outage_is_logged_once_for_all_threads() -> None:
    """Threads that fail together, each in its way, make one line; one more when all are back."""
    reader, writer, beat = (Outage(lambda delay_s: None) for _ in range(3))
    with capture_logs() as logged:
        for _ in range(2):
            reader.failed(redis.ConnectionError("gone"))
            writer.failed(redis.TimeoutError("silence"))
            reader.recovered()
            beat.failed(redis.ConnectionError("gone"))
            beat.recovered()
            beat.recovered()
            writer.recovered()

    assert ["redis.failed", "redis.recovered"] * 2 == [line["event"] for line in logged]


def test_a_thread_that_gave_up_ends_its_outage() -> None:
    """One that waits no more, or was told no, keeps nobody from saying that Redis is back."""
    answers = iter([redis.ConnectionError("gone"), redis.ResponseError("ERR no such command")])

    def call() -> None:
        raise next(answers)

    refused = Outage(lambda delay_s: None)
    with capture_logs() as logged:
        Outage(lambda delay_s: None).failed(redis.ConnectionError("gone"))
        with pytest.raises(redis.ResponseError):
            insist(call, refused, lambda: False)

    assert ["redis.failed", "redis.failed", "redis.recovered"] == [line["event"] for line in logged]


def test_insisting_ends_when_told() -> None:
    """A call that is repeated while Redis is away stops when the process is to stop."""
    client = connection.connect("unix:///nonexistent/redis.sock")
    stop = threading.Event()

    def wait(delay_s: float) -> None:
        stop.set()

    with pytest.raises(BrokerUnavailable):
        insist(client.ping, Outage(wait), stop.is_set)
