"""The reaper: what dead workers held comes back, and the living keep theirs."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from docmill.connection import connect
from docmill.keys import GROUP, Keys
from tests.support.engine_workers import make_process
from tests.support.processes import running
from tests.support.ready_documents import Documents
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until
from workers.reaper import Report, confirmation_s, reap
from workers.registry import ServedModel, register

CONFIRM_S = 0.2


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """A shard with a model registered."""
    register(redis_client, keys, "fake", ServedModel("fake", 100, (10, 20), num_buckets=3))
    redis_client.set(keys.heartbeat("preparer"), 1)  # what makes documents ready is alive
    return Documents(redis_client, keys)


Look = Callable[[], Report]


@pytest.fixture
def look(redis_client: Any, keys: Keys) -> Look:
    """One look of the reaper."""
    return lambda: reap(redis_client, keys, confirm_s=CONFIRM_S, max_deliveries=2)


def _take(
    documents: Documents,
    consumer: str = "gone",
    bucket: int = 0,
    count: int = 1000,
    *,
    begin: bool = False,
) -> int:
    """Read as a worker does, and start what was read; return how many entries came."""
    stream = documents.ready(bucket=bucket)
    if not documents.client.exists(stream) or not documents.client.xinfo_groups(stream):
        documents.client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    replies = documents.client.xreadgroup(GROUP, consumer, {stream: ">"}, count=count)
    entries = replies[0][1] if replies else []
    if begin:
        told = [
            value
            for entry_id, fields in entries
            for value in (stream, entry_id, *(fields[name] for name in (b"i", b"j", b"b", b"f")))
        ]
        documents.scripts.call("begin", GROUP, consumer, *told)
    return len(entries)


def _look_until_something_happens(look: Look) -> Report:
    report = Report()

    def has_happened() -> bool:
        nonlocal report
        report = look()
        return bool(report.lost or report.left)

    wait_until(has_happened)
    return report


def test_a_dead_consumers_entries_come_back(documents: Documents, look: Look) -> None:
    """Everything pending is free again, and the consumer is gone."""
    documents.put([f"d{number}" for number in range(250)], bucket=2)
    documents.client.hset(documents.keys.consumers, "gone", "{}")

    assert _take(documents, bucket=2) == 250
    assert look() == Report()  # missed for the first time: not yet believed
    assert _look_until_something_happens(look) == Report(250, 0, ("gone",))

    stream = documents.ready(bucket=2)

    # none had been begun, so none can be what killed it
    assert {fields[b"n"] for _, fields in documents.client.xrange(stream)} == {b"1"}
    assert documents.client.xinfo_consumers(stream, GROUP) == []
    assert documents.client.hlen(documents.keys.consumers) == 0
    assert _take(documents, "next", bucket=2) == 250


def test_a_consumer_that_said_goodbye_is_not_called_lost(documents: Documents, look: Look) -> None:
    """A worker that stopped in order is forgotten; one that only held nothing is lost."""
    documents.put(["a", "b"])
    _take(documents, "goodbye", count=1)
    stream = documents.ready()
    ((entry_id, _),) = documents.client.xrange(stream, count=1)
    documents.client.xack(stream, GROUP, entry_id)
    documents.client.hset(documents.keys.consumers, "killed", "{}")

    assert _look_until_something_happens(look) == Report(0, 0, ("killed",), ("goodbye",))
    assert documents.client.xinfo_consumers(stream, GROUP) == []


def test_a_living_consumer_keeps_its_entries(documents: Documents, look: Look) -> None:
    """However long it takes, nothing is taken from a consumer with a heartbeat."""
    documents.put(["a"])
    _take(documents)
    documents.client.set(documents.keys.heartbeat("gone"), 1)
    for _ in range(3):
        assert look() == Report()

    assert documents.client.xpending(documents.ready(), GROUP)["pending"] == 1


def test_a_consumer_that_returns_starts_afresh(documents: Documents, look: Look) -> None:
    """A missed heartbeat that came back does not count towards the next time it is missed."""
    documents.put(["a"])  # Redis 7.0 makes no consumer where nothing is read
    _take(documents)
    look()
    absent = documents.keys.absent("gone")

    assert documents.client.exists(absent) == 1

    documents.client.set(documents.keys.heartbeat("gone"), 1)
    look()

    assert documents.client.exists(absent) == 0


def test_submitted_documents_come_back_too(documents: Documents, look: Look) -> None:
    """Entries that a preprocessing worker held are handed back like an engine's."""
    documents.open()
    documents.submit("a")
    intake = documents.keys.intake("batch")
    documents.client.xgroup_create(intake, GROUP, id="0")
    documents.client.xreadgroup(GROUP, "gone", {intake: ">"})

    assert _look_until_something_happens(look) == Report(1, 0, ("gone",))
    assert documents.prepare() == [b"READY"]


def test_a_document_that_kills_is_given_up(documents: Documents, look: Look) -> None:
    """After the last delivery it fails with the reason, and becomes a dead letter."""
    documents.put(["a"])
    _take(documents, "first", begin=True)

    assert _look_until_something_happens(look) == Report(1, 0, ("first",))

    _take(documents, "second", begin=True)

    assert _look_until_something_happens(look) == Report(0, 1, ("second",))

    (result,) = documents.results()

    assert result.body.error is not None
    assert result.body.error.code == "delivery_limit"
    assert "2 deliveries" in result.body.error.message
    assert documents.client.xlen(documents.keys.dead) == 1


def test_a_first_death_fails_nobody(documents: Documents) -> None:
    """However low the limit: any of what ran together may have been the cause."""
    documents.put(["a", "b"])
    _take(documents, "gone", begin=True)

    def look() -> Report:
        return reap(documents.client, documents.keys, confirm_s=CONFIRM_S, max_deliveries=1)

    assert _look_until_something_happens(look) == Report(2, 0, ("gone",))
    assert documents.num_results() == 0


def test_only_what_was_worked_on_alone_is_blamed(documents: Documents, look: Look) -> None:
    """Of what a preprocessing worker held, the one entry that it worked on counts a delivery."""
    documents.open()
    for name in ("a", "b", "c"):
        documents.submit(name)
    intake = documents.keys.intake("batch")
    documents.client.xgroup_create(intake, GROUP, id="0")
    ((_, entries),) = documents.client.xreadgroup(GROUP, "gone", {intake: ">"})
    documents.scripts.call("alone", "gone", entries[1][0], 60)

    assert _look_until_something_happens(look) == Report(3, 0, ("gone",))

    deliveries = {fields[b"i"]: fields[b"n"] for _, fields in documents.client.xrange(intake)}

    assert deliveries == {b"job.a": b"1", b"job.b": b"2", b"job.c": b"1"}
    assert documents.client.exists(documents.keys.alone("gone")) == 0


class _Overtaken:
    """A connection that hangs once in mid-round, until another reaper leads the shard."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self.num_hung = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents.client, name)

    def xpending_range(self, *args: Any) -> Any:
        """Answer late."""
        self.num_hung += 1
        self._documents.client.delete(self._documents.keys.reaper)
        self._documents.scripts.call("lead", "another", 60_000)
        return self._documents.client.xpending_range(*args)


def test_a_reaper_that_was_overtaken_does_nothing(documents: Documents, look: Look) -> None:
    """One that hangs until another leads neither hands anything back nor forgets anybody."""
    documents.put(["a"])
    _take(documents)
    client, keys = _Overtaken(documents), documents.keys

    def has_hung() -> bool:
        assert reap(client, keys, confirm_s=CONFIRM_S, max_deliveries=2) == Report()
        return client.num_hung > 0

    wait_until(has_hung)

    assert documents.client.xpending(documents.ready(), GROUP)["pending"] == 1

    documents.scripts.call("resign", "another")

    assert _look_until_something_happens(look) == Report(1, 0, ("gone",))


def test_a_full_memory_stops_neither_heartbeats_nor_the_reaper(keys: Keys) -> None:
    """While Redis takes nothing new, the living stay alive and the dead's entries come back."""
    with running_redis() as server:
        client = connect(server.url)
        documents = Documents(client, keys)
        register(client, keys, "fake", ServedModel("fake", 100, (), num_buckets=1))
        client.set(keys.heartbeat("preparer"), 1)
        documents.put(["a", "b"])
        process = make_process("engine", server.url, keys, heartbeat_ttl_s=0.5)
        _take(documents, process.consumer, count=1)
        _take(documents, "gone", count=1)
        client.config_set("maxmemory", 1)
        process.presence.enter(threading.Event())
        before: Any = client.time()

        report = _look_until_something_happens(
            lambda: reap(client, keys, confirm_s=CONFIRM_S, max_deliveries=2)
        )
        now: Callable[[], Any] = client.time
        wait_until(lambda: now()[0] > before[0] + 1)  # several of the living's lifetimes
        later = reap(client, keys, confirm_s=CONFIRM_S, max_deliveries=2)

        assert (report, later) == (Report(1, 0, ("gone",)), Report())
        assert client.exists(keys.heartbeat(process.consumer)) == 1

        client.config_set("maxmemory", 0)
        process.presence.leave()
        process.client.close()
        client.close()


def test_consumers_that_never_read_are_taken_off_the_list(documents: Documents, look: Look) -> None:
    """A worker that died while it loaded its model is not shown for ever."""
    documents.client.hset(documents.keys.consumers, "gone", "{}")

    assert _look_until_something_happens(look).lost == ("gone",)
    assert documents.client.hlen(documents.keys.consumers) == 0


def test_one_reaper_works_at_a_time(documents: Documents, look: Look) -> None:
    """A second reaper does nothing while the first is at work."""
    _take(documents)
    token = documents.scripts.call("lead", "another", 60_000)
    look()

    assert documents.client.exists(documents.keys.absent("gone")) == 0
    assert documents.client.get(documents.keys.reaper) == b"%d another" % token


def test_an_empty_shard_is_no_problem(redis_client: Any, keys: Keys) -> None:
    """Without models, streams or consumers there is nothing to do."""
    redis_client.hset(keys.models, "odd", b"not msgpack")

    assert reap(redis_client, keys, confirm_s=CONFIRM_S, max_deliveries=2) == Report()


def test_the_dead_are_found_within_ten_seconds() -> None:
    """By default: the heartbeat lapses, is missed at a look, and that is confirmed at another."""
    ttl_s, look_s = 5.0, 1.0

    assert ttl_s + look_s + confirmation_s(ttl_s) + look_s < 10


def test_a_killed_workers_documents_are_answered_by_another(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """After SIGKILL in mid-batch every document has exactly one result."""
    names = [f"d{number}" for number in range(40)]
    documents.put(names)
    settings = {
        "redis_url": redis_url,
        "namespace": keys.namespace,
        "engine": "fake",
        "heartbeat_ttl_s": 1,
        "max_rows": 8,
    }
    with running("tests.support.slow_engine_worker", "0.2", **settings) as doomed:
        wait_until(lambda: documents.num_results() >= 8)
        doomed.kill()
        doomed.wait()

    assert documents.num_results() < 40

    with (
        running("workers.control", **settings),
        running("tests.support.slow_engine_worker", "0", **settings),
    ):
        wait_until(lambda: documents.num_results() >= 40, timeout_s=15)

    assert Counter(names) == Counter(result.custom_id for result in documents.results())
    assert documents.counts() == {"submitted": 40, "succeeded": 40}
    assert documents.backlog() == {"docs": 0, "bytes": 0}
