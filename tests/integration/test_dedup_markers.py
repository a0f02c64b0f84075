"""FLD-D05: the marker of who computes an answer ends with its job; no copy waits for ever."""

from typing import Any

import pytest

from docmill.keys import Keys
from docmill.wire import Body
from tests.support.ready_documents import Documents
from tests.support.script_worker import Worker

ORIGINAL, COPY = "original", "copy"


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test, with a job of the original's and one of the copies'."""
    documents = Documents(redis_client, keys)
    for job in (ORIGINAL, COPY):
        documents.open(job)
    return documents


@pytest.fixture
def worker(documents: Documents) -> Worker:
    """A worker on it."""
    return Worker(documents)


def arrive(documents: Documents, *custom_ids: str, job: str = COPY) -> list[bytes]:
    """Submit documents of the one fingerprint and prepare them; also what came back to intake."""
    for custom_id in custom_ids:
        assert documents.submit(custom_id, job_id=job) == b"OK"
    return documents.prepare(fingerprint="fp")


def run(documents: Documents, worker: Worker, **told: Any) -> None:
    """Answer what is ready."""
    taken = worker.take()

    assert taken
    worker.begin(*taken)
    worker.complete(*taken, **told)


def copies(documents: Documents) -> dict[str, tuple[str, Body]]:
    """Return how each copy was answered, and with what."""
    return {one.custom_id: (one.how, one.body) for one in documents.results(COPY)}


def leftovers(documents: Documents) -> list[bytes]:
    """Return markers and lists of those who wait."""
    prefix = documents.keys.prefix
    left: list[bytes] = []
    for name in ("lead", "followers"):
        left += documents.client.keys(f"{prefix}:{name}:*")
    return left


ANSWER = Body(text="answer")


def test_a_copy_of_a_dead_document_runs_anew(documents: Documents, worker: Worker) -> None:
    """FLD-D05 (a): one that waited for the one that failed leads, and those who come later wait."""
    assert arrive(documents, "a", job=ORIGINAL) == [b"READY"]
    assert arrive(documents, "waiting") == [b"FOLLOWS"]
    (taken,) = worker.take()
    worker.begin(taken)
    worker.bury(taken)

    assert arrive(documents, "late") == [b"FOLLOWS"]

    run(documents, worker)

    assert copies(documents) == {"waiting": ("run", ANSWER), "late": ("follower", ANSWER)}
    assert leftovers(documents) == []


@pytest.mark.parametrize("how", ["job", "singly"])
@pytest.mark.parametrize("when", ["waiting", "running"])
def test_copies_outlive_a_cancelled_original(
    documents: Documents, worker: Worker, how: str, when: str
) -> None:
    """FLD-D05 (c): the first that waited for it runs with its prompt, the others wait on."""
    arrive(documents, "a", job=ORIGINAL)

    assert arrive(documents, "b", "c") == [b"FOLLOWS", b"FOLLOWS"]

    taken = worker.take()
    if when == "running":
        worker.begin(*taken)
    documents.scripts.call("cancel", ORIGINAL, *(["a"] if how == "singly" else []))
    if when == "waiting":
        assert worker.begin(*taken) == [b"DROPPED"]
    else:
        worker.complete(*taken, outcome="cancelled")

    assert arrive(documents) == []

    run(documents, worker)

    assert copies(documents) == {"b": ("run", ANSWER), "c": ("follower", ANSWER)}
    assert documents.counts(ORIGINAL) == {"submitted": 1, "cancelled": 1}
    assert leftovers(documents) == []


def test_a_copy_after_everything_has_expired_runs_anew(
    documents: Documents, worker: Worker
) -> None:
    """FLD-D05 (d): the stored answer and the original's job are gone; nothing points at them."""
    arrive(documents, "a", job=ORIGINAL)
    run(documents, worker, ttl_s=60)

    assert documents.client.ttl(documents.keys.cached_result("fp")) > 0

    job_keys = documents.client.keys(f"{documents.keys.job(ORIGINAL)}*")
    documents.client.delete(documents.keys.cached_result("fp"), *job_keys)

    assert arrive(documents, "b") == [b"READY"]

    run(documents, worker)

    assert copies(documents) == {"b": ("run", ANSWER)}


@pytest.mark.parametrize(
    "marker",
    [
        "somebody",
        "",
        "somebody\n{}\n1-1",
        "somebody\n{}\n1-1\n0",
        "somebody\n{}:ready:fake:batch:0\nno entry\n0",
        "somebody\n{}:ready:fake:batch:0\n1-1\nmany",
        "somebody\n\n\n",
        "some\nbody\n{}:ready:fake:batch:0\n1-1\n0",
    ],
)
def test_a_marker_without_a_job_is_not_believed(
    documents: Documents, worker: Worker, marker: str
) -> None:
    """FLD-D05 (e): the first copy that meets it leads, and takes along who waited for nobody."""
    keys, client = documents.keys, documents.client
    arrive(documents, "leader", job=ORIGINAL)

    assert arrive(documents, "b") == [b"FOLLOWS"]

    client.delete(documents.ready())
    client.set(keys.leader("fp"), marker.format(keys.prefix))

    assert arrive(documents, "c") == [b"READY"]
    assert arrive(documents, "d") == [b"FOLLOWS"]

    run(documents, worker)

    assert copies(documents) == {
        "c": ("run", ANSWER),
        "b": ("follower", ANSWER),
        "d": ("follower", ANSWER),
    }
    assert leftovers(documents) == []


def test_a_deleted_ready_stream_leaves_no_marker_behind(
    documents: Documents, worker: Worker
) -> None:
    """FLD-D05 (e): its documents are lost, as somebody wished; copies of them are answered."""
    arrive(documents, "a", job=ORIGINAL)
    documents.client.delete(documents.ready())

    assert arrive(documents, "b", "c") == [b"READY", b"FOLLOWS"]

    run(documents, worker)

    assert set(copies(documents)) == {"b", "c"}


def test_a_leader_that_is_handed_back_still_leads(documents: Documents, worker: Worker) -> None:
    """Its entry has another id then, and waits for a while or not; its marker is still believed."""
    arrive(documents, "a", job=ORIGINAL)
    (taken,) = worker.take()

    assert worker.redeliver(taken, counts=0) == b"BACK"
    assert arrive(documents, "b") == [b"FOLLOWS"]

    (taken,) = worker.take()

    assert worker.redeliver(taken, counts=0, delay_s=0.001) == b"LATER"
    assert arrive(documents, "c") == [b"FOLLOWS"]

    documents.client.zadd(documents.keys.later, {f"{ORIGINAL}.a": 0})
    documents.scripts.call("due", 10)

    assert arrive(documents, "d") == [b"FOLLOWS"]

    run(documents, worker)

    assert dict.fromkeys("bcd", ("follower", ANSWER)) == copies(documents)
    assert leftovers(documents) == []
