"""What the control process does every second and every minute, on a real Redis."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from docmill.keys import GROUP, Keys
from tests.support.engine_workers import make_process
from tests.support.ready_documents import NOW, Documents
from tests.support.script_worker import Worker
from tests.support.wait import wait_until
from workers import rounds
from workers.process import Process
from workers.registry import ServedModel, register
from workers.rounds import Rounds
from workers.streams import ensure_groups
from workers.tasks import Tasks

#: Long past, and far ahead.
PAST, FUTURE = NOW - 1e9, 4e9


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """A shard with a model registered."""
    register(redis_client, keys, "fake", ServedModel("fake", 100, (10, 20), num_buckets=3))
    return Documents(redis_client, keys)


@pytest.fixture
def process(redis_url: str, keys: Keys) -> Iterator[Process]:
    """A control process' surroundings."""
    process = make_process(
        "control", redis_url, keys, producer_silence_s=60, dead_letter_ttl_s=3600
    )
    yield process
    process.client.close()


@pytest.fixture
def regular(process: Process) -> Rounds:
    """The regular work."""
    return Rounds(process, Tasks(process))


def _take(documents: Documents, stream: str, consumer: str = "holder") -> list[Any]:
    ensure_groups(documents.client, [stream])
    replies = documents.client.xreadgroup(GROUP, consumer, {stream: ">"})
    return list(replies[0][1]) if replies else []


def _pause(documents: Documents, is_paused: bool) -> None:
    documents.scripts.call("pause", "job", int(is_paused))


def _park(documents: Documents) -> None:
    """Let an engine meet what is ready while the job is paused."""
    _pause(documents, is_paused=True)
    stream = documents.ready()
    for entry, fields in _take(documents, stream):
        told = [fields[name] for name in (b"i", b"j", b"b", b"f")]
        documents.scripts.call("begin", GROUP, "holder", stream, entry, *told)
    assert documents.client.xlen(documents.keys.parked("job"))


def test_a_retry_comes_back_when_it_is_due(documents: Documents, regular: Rounds) -> None:
    """An entry that waits for another try is ready again, no sooner than it should be."""
    documents.put(["soon", "late"])
    stream, delays_s = documents.ready(), {b"job.soon": 0.01, b"job.late": 3600}
    for entry, fields in _take(documents, stream):
        told = (0, 5, delays_s[fields[b"i"]], "code", b"body", "message", "", "", "")
        documents.scripts.call("redeliver", stream, GROUP, "holder", entry, *told)

    def is_back() -> bool:
        regular.every_second()
        return bool(documents.client.xlen(stream))

    wait_until(is_back)

    assert [b"job.soon"] == [fields[b"i"] for _, fields in documents.client.xrange(stream)]
    assert [b"job.late"] == documents.client.zrange(documents.keys.later, 0, -1)


def test_a_resumed_jobs_entries_come_back(documents: Documents, regular: Rounds) -> None:
    """What was parked for a pause stays until the job goes on, and is ready again then."""
    documents.put(["a", "b"])
    _park(documents)
    regular.every_second()

    assert documents.client.xlen(documents.ready()) == 0

    _pause(documents, is_paused=False)
    regular.every_second()

    assert documents.client.xlen(documents.ready()) == 2
    assert not documents.client.exists(documents.keys.parked("job"))


def test_more_than_one_call_moves_is_moved(
    documents: Documents, regular: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round goes on until nothing is left, one bounded call after the other."""
    monkeypatch.setattr(rounds, "_MOVED_AT_ONCE", 2)
    documents.put("abcde")
    _park(documents)
    _pause(documents, is_paused=False)
    regular.every_second()

    assert documents.client.xlen(documents.ready()) == 5


def test_a_failing_step_keeps_no_other_from_its_work(documents: Documents, regular: Rounds) -> None:
    """A step that cannot work is logged once, and once more when it can; the rest goes on."""
    documents.put(["a"])
    _park(documents)
    _pause(documents, is_paused=False)
    documents.client.set(documents.keys.later, "no sorted set")
    with capture_logs() as logged:
        regular.every_second()
        regular.every_second()

        assert documents.client.xlen(documents.ready()) == 1

        documents.client.delete(documents.keys.later)
        regular.every_second()
        regular.every_second()

    steps = [(one["event"], one["step"]) for one in logged if one["event"].startswith("step.")]
    assert [("step.failed", "retries"), ("step.recovered", "retries")] == steps


def test_an_outage_is_not_logged_for_each_step() -> None:
    """A Redis that is away is said once, by the process; the steps only wait for the next round."""

    def work() -> None:
        raise redis.ConnectionError("gone")

    with capture_logs() as logged:
        rounds.Step("reaping", work).take()

    assert [] == logged


def test_a_fault_of_ours_is_logged_with_its_trace(
    documents: Documents, regular: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nobody foresaw ends its step alone."""
    documents.put(["a"])
    _park(documents)
    _pause(documents, is_paused=False)

    def fail(*args: object, **kwargs: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(rounds, "reap", fail)
    with capture_logs() as logged:
        regular.every_second()

    assert documents.client.xlen(documents.ready()) == 1
    assert [one["step"] for one in logged if one.get("exc_info")] == ["reaping"]


def test_silent_producers_jobs_are_closed(documents: Documents, regular: Rounds) -> None:
    """A job whose producer is gone ends with its last document; an active one's stays open."""
    documents.open("gone")
    documents.open("active")
    documents.client.zadd(documents.keys.open_jobs, {"gone": PAST})
    regular.every_minute()

    assert documents.client.hget(documents.keys.job("gone"), "sealed") == b"1"
    assert documents.client.hexists(documents.keys.job("gone"), "finished_at")
    assert documents.client.hget(documents.keys.job("active"), "sealed") == b"0"


def test_dead_letters_go_by_age_alone(documents: Documents, regular: Rounds) -> None:
    """Those older than their lifetime are dropped, to the last one; younger ones are all kept."""
    now_ms = documents.client.time()[0] * 1000
    for age_s in (7200, 3700, 3500, 0):
        documents.client.xadd(documents.keys.dead, {"i": age_s}, id=f"{now_ms - age_s * 1000}-1")
    regular.every_minute()

    kept = [fields[b"i"] for _, fields in documents.client.xrange(documents.keys.dead)]
    assert [b"3500", b"0"] == kept


def test_deadlines_pass_where_nobody_works(documents: Documents, regular: Rounds) -> None:
    """Without any worker, late documents that wait end as expired, each with a result."""
    documents.open()
    documents.submit("late ready", deadline_at=PAST)
    documents.submit("ready", deadline_at=FUTURE)
    documents.prepare()
    documents.submit("late intake", deadline_at=PAST)
    documents.submit("intake")
    documents.scripts.call("seal", "job")
    with capture_logs() as logged:
        regular.every_minute()

    assert documents.counts() == {"submitted": 4, "expired": 2}
    assert {"late ready", "late intake"} == {result.custom_id for result in documents.results()}
    for result in documents.results():
        assert result.body.outcome == "expired"
        assert result.body.error is not None
        assert "deadline" in result.body.error.message
    assert documents.backlog() == {"docs": 2, "bytes": 8}
    assert {"event": "documents.expired", "documents": 2, "log_level": "info"} in logged


def test_deadlines_pass_while_a_job_is_paused(documents: Documents, regular: Rounds) -> None:
    """A parked document whose deadline passes ends, and an emptied job leaves nothing parked."""
    documents.open()
    documents.submit("late", deadline_at=PAST)
    documents.prepare()
    documents.scripts.call("seal", "job")
    _park(documents)
    regular.every_minute()

    assert documents.counts() == {"submitted": 1, "expired": 1}
    assert not documents.client.exists(documents.keys.parked("job"))
    assert not documents.client.exists(documents.keys.parked_jobs)
    assert documents.client.hexists(documents.keys.job("job"), "finished_at")


def test_what_a_worker_holds_is_its_own(documents: Documents, regular: Rounds) -> None:
    """A late document that was delivered is left to who has it."""
    documents.open()
    documents.submit("late", deadline_at=PAST)
    documents.prepare()
    _take(documents, documents.ready())
    regular.every_minute()

    assert documents.counts() == {"submitted": 1}
    assert documents.client.xlen(documents.ready()) == 1


def test_a_late_leader_lets_its_followers_go_on(documents: Documents, regular: Rounds) -> None:
    """A document that waited for the late one's answer leads in its place."""
    documents.open()
    documents.submit("leader", deadline_at=PAST)
    documents.submit("follower")
    assert [b"READY", b"FOLLOWS"] == documents.prepare([1, 2], fingerprint="same")
    regular.every_minute()

    assert documents.counts() == {"submitted": 2, "expired": 1}
    assert documents.client.xlen(documents.ready()) == 1


def test_late_documents_of_a_cancelled_job_are_not_counted_twice(
    documents: Documents, regular: Rounds
) -> None:
    """What the cancellation counted only goes."""
    documents.open()
    documents.submit("late", deadline_at=PAST)
    documents.scripts.call("cancel", "job")
    regular.every_minute()

    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_looking_for_deadlines_is_bounded_and_goes_on(
    documents: Documents, regular: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round looks through so many entries, and the next through those that follow."""
    monkeypatch.setattr(rounds, "_LOOKS", 4)
    monkeypatch.setattr(rounds, "_LOOKS_AT_ONCE", 2)
    documents.open()
    for number in range(10):
        documents.submit(f"{number}", deadline_at=PAST)
    ended = []
    for _ in range(4):
        regular.every_minute()
        ended.append(documents.counts().get("expired", 0))

    assert [4, 8, 10, 10] == ended


def test_large_documents_are_looked_at_a_few_at_a_time(documents: Documents) -> None:
    """A page ends after a megabyte, because each look copies the whole document."""
    documents.open()
    for number in range(5):
        documents.submit(f"{number}", document=b"x" * 400_000, deadline_at=FUTURE)
    stream = documents.keys.intake("batch")
    ended, at, num_seen = documents.scripts.call("expire", stream, GROUP, "0", 100, b"")

    assert (0, 3) == (ended, num_seen)
    assert [0, b"", 2] == documents.scripts.call("expire", stream, GROUP, at, 100, b"")


def test_streams_keep_no_memory_of_what_was_acknowledged(documents: Documents) -> None:
    """Many tiny documents leave empty streams behind: nothing has to be trimmed."""
    documents.open()
    for page in range(10):
        documents.submit_all([(f"{page}.{number}", b"tiny") for number in range(100)])
    documents.prepare()
    full_bytes = documents.client.memory_usage(documents.ready(), samples=0)
    for entry, fields in _take(documents, documents.ready()):
        told = [fields[name] for name in (b"i", b"j", b"b", b"f", b"h")]
        ready = (documents.ready(), entry)
        documents.scripts.call("complete", GROUP, "holder", 0, 0, *ready, *told, "succeeded", b"")

    assert documents.counts() == {"submitted": 1000, "succeeded": 1000}
    assert full_bytes > 100_000
    for stream in (documents.keys.intake("batch"), documents.ready()):
        assert documents.client.memory_usage(stream, samples=0) < 1000


def test_stored_answers_make_room_when_memory_is_short(
    documents: Documents, regular: Rounds
) -> None:
    """While Redis is nearly full, half of them go each second, the least recently used first."""
    worker, client = Worker(documents), documents.client
    documents.open()
    for text in ("one", "two", "three", "four"):
        documents.submit(text, document=text.encode())
    documents.prepare(fingerprint=str)
    taken = worker.take()
    worker.begin(*taken)
    worker.complete(*taken)
    try:
        regular.every_second()

        assert client.zcard(documents.keys.answers) == 4

        client.config_set("maxmemory", client.info("memory")["used_memory"])
        regular.every_second()

        assert client.zcard(documents.keys.answers) == 2
    finally:
        client.config_set("maxmemory", 0)
