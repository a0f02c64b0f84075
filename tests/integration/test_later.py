"""Entries that wait for another try: out of everybody's way until their moment, and then back."""

from typing import Any

import pytest

from tests.support.ready_documents import Documents
from tests.support.script_worker import Taken, Worker

HOUR_S = 3600


def put_off(documents: Documents, worker: Worker, *custom_ids: str, **prepared: Any) -> list[Taken]:
    """Let these documents fail once, each to be tried again in an hour."""
    documents.put(custom_ids, **prepared)
    taken = worker.take()
    worker.begin(*taken)
    for one in taken:
        assert worker.redeliver(one, delay_s=HOUR_S) == b"LATER"
    return taken


def pass_time(documents: Documents, *custom_ids: str) -> None:
    """Let the moment come for which these wait: Redis' own clock cannot be moved."""
    documents.client.zadd(documents.keys.later, {f"job.{one}": 1.0 for one in custom_ids}, xx=True)


def test_an_entry_waits_its_time_and_comes_back(documents: Documents, worker: Worker) -> None:
    """Nobody can read it before; then it is where it was, with its delivery counted."""
    (taken,) = put_off(documents, worker, "a")

    assert documents.scripts.call("due", 10) == 0
    assert worker.take() == []
    assert documents.counts() == {"submitted": 1}  # it runs no more
    assert documents.backlog() == {"docs": 1, "bytes": 4}

    pass_time(documents, "a")

    assert documents.scripts.call("due", 10) == 1
    assert documents.scripts.call("due", 10) == 0

    (again,) = worker.take()

    assert again[2] == {**taken[2], b"n": b"2"}
    assert documents.client.keys(f"{documents.keys.later}*") == []


def test_the_moment_is_counted_from_redis_clock(documents: Documents, worker: Worker) -> None:
    """The delay starts when Redis writes it down, whatever the worker's clock says."""
    before, _ = documents.client.time()
    put_off(documents, worker, "a")
    after, _ = documents.client.time()
    due = documents.client.zscore(documents.keys.later, "job.a")

    assert before + HOUR_S <= due <= after + 1 + HOUR_S


def test_those_due_first_come_first_and_no_more_than_asked(
    documents: Documents, worker: Worker
) -> None:
    """One call moves a bounded number, in the order of their moments."""
    put_off(documents, worker, "a", "b", "c")
    documents.client.zadd(documents.keys.later, {"job.a": 3, "job.b": 1, "job.c": 2})

    assert documents.scripts.call("due", 2) == 2
    assert [fields[b"i"] for _, _, fields in worker.take()] == [b"job.b", b"job.c"]
    assert documents.scripts.call("due", 2) == 1


def test_what_somebody_spoiled_keeps_nothing_back(documents: Documents, worker: Worker) -> None:
    """An entry that cannot be brought back is put off; those behind it come."""
    put_off(documents, worker, "a")
    pass_time(documents, "a")
    documents.client.set(documents.keys.later_entry("odd"), "no hash")
    documents.client.hset(documents.keys.later_entry("empty"), "stream", documents.ready())
    documents.client.zadd(documents.keys.later, {"odd": 0, "empty": 0})
    documents.scripts.call("due", 10)

    assert [fields[b"i"] for _, _, fields in worker.take()] == [b"job.a"]
    assert documents.client.zrange(documents.keys.later, 0, -1) == [b"empty", b"odd"]
    assert documents.scripts.call("due", 10) == 0


def test_an_intake_entry_comes_back_to_intake(documents: Documents) -> None:
    """Preprocessing may put off as engines do."""
    documents.open()
    documents.submit("a", tier="interactive")
    intake = documents.keys.intake("interactive")
    preparer = Worker(documents, "preparer")
    (taken,) = preparer.take(stream=intake)

    assert preparer.redeliver(taken, delay_s=HOUR_S) == b"LATER"

    pass_time(documents, "a")

    assert documents.scripts.call("due", 10) == 1
    assert documents.prepare(tier="interactive") == [b"READY"]


@pytest.mark.parametrize("custom_ids", [[], ["a"]], ids=["whole job", "singly"])
def test_what_was_cancelled_meanwhile_does_not_come_back(
    documents: Documents, worker: Worker, custom_ids: list[str]
) -> None:
    """It is counted as cancelled, once, and leaves the backlog when it is due."""
    put_off(documents, worker, "a")
    documents.scripts.call("seal", "job")

    assert documents.scripts.call("cancel", "job", *custom_ids) == 1

    pass_time(documents, "a")

    assert documents.scripts.call("due", 10) == 1
    assert worker.take() == []
    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert documents.client.ttl(documents.keys.job("job")) > 0


def test_what_belongs_to_no_job_any_more_does_not_come_back(
    documents: Documents, worker: Worker
) -> None:
    """An entry that outlived its job leaves nothing behind."""
    put_off(documents, worker, "a")
    documents.client.delete(*documents.client.keys(f"{documents.keys.job('job')}*"))
    pass_time(documents, "a")

    assert documents.scripts.call("due", 10) == 1
    assert documents.client.xlen(documents.ready()) == 0
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert documents.client.keys(f"{documents.keys.job('job')}*") == []


def test_a_leader_that_waits_still_leads(documents: Documents, worker: Worker) -> None:
    """Its followers get its answer after the retry."""
    documents.open()
    documents.submit("b")
    put_off(documents, worker, "a", fingerprint="fp")
    pass_time(documents, "a", "b")
    documents.scripts.call("due", 10)
    (taken,) = worker.take()
    worker.begin(taken)
    worker.complete(taken)

    assert sorted(result.custom_id for result in documents.results()) == ["a", "b"]
    assert documents.counts() == {"submitted": 2, "succeeded": 2}


def test_one_delivery_too_many_ends_at_once(documents: Documents, worker: Worker) -> None:
    """What is given up does not wait first."""
    put_off(documents, worker, "a")
    pass_time(documents, "a")
    documents.scripts.call("due", 10)
    (taken,) = worker.take()
    worker.begin(taken)

    assert worker.redeliver(taken, delay_s=HOUR_S) == b"DEAD"
    assert documents.client.keys(f"{documents.keys.later}*") == []
    assert documents.counts() == {"submitted": 1, "failed": 1}
