"""Steering jobs: cancelling single documents, and closing what its producer left open."""

from collections.abc import Callable

import pytest

from tests.support.ready_documents import Documents
from tests.support.script_worker import Worker

Reach = Callable[[Documents, Worker], None]


def _submitted(documents: Documents, worker: Worker) -> None:
    documents.submit("a")


def _ready(documents: Documents, worker: Worker) -> None:
    documents.put(["a"])


def _handed_back(documents: Documents, worker: Worker) -> None:
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    worker.redeliver(taken)


def _following(documents: Documents, worker: Worker) -> None:
    documents.open("other")
    documents.submit("leader", job_id="other")
    documents.put(["a"], fingerprint="fp")


def _parked(documents: Documents, worker: Worker) -> None:
    documents.put(["a"])
    documents.scripts.call("pause", "job", 1)
    worker.begin(*worker.take())


def _later(documents: Documents, worker: Worker) -> None:
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    worker.redeliver(taken, delay_s=3600)


@pytest.mark.parametrize(
    "reach",
    [_submitted, _ready, _handed_back, _following, _parked, _later],
    ids=lambda f: f.__name__,
)
def test_a_single_document_is_cancelled_wherever_it_waits(
    documents: Documents, worker: Worker, reach: Reach
) -> None:
    """Whoever meets it next drops it: counted once, without a result, and the job goes on."""
    documents.open()
    reach(documents, worker)
    documents.submit("b")

    assert documents.scripts.call("cancel", "job", "a", "unknown") == 1
    assert documents.scripts.call("cancel", "job", "a") == 0

    documents.scripts.call("pause", "job", 0)
    documents.client.zadd(documents.keys.later, {"job.a": 1.0}, xx=True)
    documents.scripts.call("unpark", 10)
    documents.scripts.call("due", 10)
    worker.work_off()

    assert documents.counts() == {"submitted": 2, "succeeded": 1, "cancelled": 1}
    assert [result.custom_id for result in documents.results()] == ["b"]
    assert documents.backlog() == {"docs": 0, "bytes": 0}

    documents.scripts.call("seal", "job")

    assert documents.client.ttl(documents.keys.cancelled("job")) > 0


@pytest.mark.parametrize("outcome", ["cancelled", "succeeded"])
def test_a_running_document_that_is_cancelled_ends_as_its_worker_says(
    documents: Documents, worker: Worker, outcome: str
) -> None:
    """The worker stops it, or has just finished it: then the answer counts."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    documents.scripts.call("cancel", "job", "a")

    assert worker.complete(taken, outcome=outcome) == [b"OK"]
    assert documents.counts() == {"submitted": 1, outcome: 1}
    assert documents.num_results() == (outcome == "succeeded")


def test_a_running_document_that_is_cancelled_and_handed_back_is_dropped(
    documents: Documents, worker: Worker
) -> None:
    """Its worker died or failed: nobody tries it again."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    documents.scripts.call("cancel", "job", "a")

    assert worker.redeliver(taken) == b"DROPPED"
    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.client.zcard(documents.keys.running) == 0


def test_what_is_done_keeps_its_result(documents: Documents, worker: Worker) -> None:
    """Cancelling it afterwards changes neither its result nor the counters."""
    documents.put(["a", "b"])
    taken, _ = worker.take()
    worker.begin(taken)
    worker.complete(taken)
    documents.scripts.call("cancel", "job", "a")

    assert documents.counts() == {"submitted": 2, "succeeded": 1}
    assert [result.custom_id for result in documents.results()] == ["a"]


def test_a_cancelled_leader_leaves_its_followers(documents: Documents, worker: Worker) -> None:
    """Those who waited for its answer find one for themselves."""
    documents.open()
    documents.submit_all([("a", b"text"), ("b", b"text")])
    documents.prepare(fingerprint="fp")
    documents.scripts.call("cancel", "job", "a")
    worker.work_off(fingerprint="fp")

    assert documents.counts() == {"submitted": 2, "succeeded": 1, "cancelled": 1}
    assert documents.client.keys(f"{documents.keys.prefix}:followers:*") == []


def test_singly_and_wholly_cancelled_is_counted_once(documents: Documents, worker: Worker) -> None:
    """A document that is cancelled both ways is one cancelled document."""
    documents.put(["a", "b"])
    documents.scripts.call("cancel", "job", "a")

    assert documents.scripts.call("cancel", "job") == 2
    assert worker.begin(*worker.take()) == [b"DROPPED", b"DROPPED"]
    assert documents.counts() == {"submitted": 2, "cancelled": 2}


def test_a_job_that_has_ended_or_never_was_cannot_be_cancelled_singly(
    documents: Documents, worker: Worker
) -> None:
    """The reply tells the two apart, and no key is written."""
    assert documents.scripts.call("cancel", "job", "a") == -1

    documents.put(["a"])
    worker.work_off()
    documents.scripts.call("seal", "job")

    assert documents.scripts.call("cancel", "job", "a") == 0
    assert not documents.client.exists(documents.keys.cancelled("job"))


def test_jobs_of_silent_producers_are_sealed(documents: Documents, worker: Worker) -> None:
    """Only those silent for long, a bounded number in one call; their documents still end."""
    for job_id in ("job", "older", "active"):
        documents.open(job_id)
    documents.submit("a")
    documents.client.zadd(documents.keys.open_jobs, {"job": 2.0, "older": 1.0})

    assert documents.scripts.call("abandoned", 3600, 1) == 1
    assert documents.client.hget(documents.keys.job("older"), "finished_at")
    assert documents.scripts.call("abandoned", 3600, 10) == 1
    assert documents.scripts.call("abandoned", 3600, 10) == 0
    assert documents.client.zrange(documents.keys.open_jobs, 0, -1) == [b"active"]

    worker.work_off()

    assert documents.client.ttl(documents.keys.job("job")) > 0
    assert documents.client.ttl(documents.keys.job("active")) == -1


def test_every_submission_is_a_sign_of_life(documents: Documents) -> None:
    """A producer that submits is not silent, and a sealed job has none."""
    documents.open()
    documents.client.zadd(documents.keys.open_jobs, {"job": 1.0})
    documents.submit("a")

    assert documents.scripts.call("abandoned", 3600, 10) == 0

    documents.scripts.call("seal", "job")
    documents.submit("b")

    assert not documents.client.exists(documents.keys.open_jobs)


def test_a_finished_job_takes_no_documents_until_it_is_opened_again(
    documents: Documents, worker: Worker
) -> None:
    """Neither good ones nor bad ones; opening it stops the clock on its keys."""
    documents.put(["a"])
    documents.scripts.call("seal", "job")

    assert documents.submit("b") == b"OK"  # sealed, but not at its end

    worker.work_off()

    assert documents.submit("a") == b"SEEN"
    assert documents.submit("c") == b"CLOSED"
    assert documents.scripts.call("reject", "job", "c", b"header", b"body") == b"CLOSED"

    documents.open()

    assert documents.submit("c") == b"OK"
    assert documents.client.ttl(documents.keys.job("job")) == -1


def test_no_key_outlives_a_job_that_ended_empty(documents: Documents) -> None:
    """A bad document that comes late writes nothing: its result would have no lifetime."""
    documents.open()
    documents.scripts.call("seal", "job")

    assert documents.scripts.call("reject", "job", "a", b"header", b"body") == b"CLOSED"
    assert documents.counts() == {}
    assert not documents.client.exists(
        documents.keys.results("job"), documents.keys.custom_ids("job")
    )


def test_a_cancelled_job_takes_no_bad_documents(documents: Documents) -> None:
    """Nothing is added to it any more, as with good ones."""
    documents.put(["a"])
    documents.scripts.call("cancel", "job")

    assert documents.scripts.call("reject", "job", "a", b"header", b"body") == b"SEEN"
    assert documents.scripts.call("reject", "job", "b", b"header", b"body") == b"CANCELLED"
    assert documents.counts() == {"submitted": 1, "cancelled": 1}
