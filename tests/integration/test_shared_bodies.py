"""Bodies that several results of a job share: large ones are stored once."""

from docmill.wire import Body
from tests.support.ready_documents import Documents
from tests.support.script_worker import Worker

#: As in lua/_lib.lua: so many bytes or more are stored once.
SHARED_BYTES = 1024


def body_of(num_bytes: int) -> bytes:
    """Return a body of exactly so many bytes."""
    frame = len(Body(text="x" * 300).encode()) - 300
    return Body(text="x" * (num_bytes - frame)).encode()


def answer(documents: Documents, worker: Worker, body: bytes, *custom_ids: str) -> None:
    """Answer equal documents with this body: the first is the leader of the others."""
    documents.submit_all([(custom_id, b"text") for custom_id in custom_ids])
    documents.prepare(fingerprint="fp")
    (taken,) = worker.take()
    worker.begin(taken)

    assert worker.complete(taken, body=body) == [b"OK"]


def stored(documents: Documents, job_id: str = "job") -> list[tuple[bytes, bytes | None]]:
    """Return each result's own body, and the name of a shared one."""
    rows = documents.client.xrange(documents.keys.results(job_id))
    return [(fields[b"b"], fields.get(b"s")) for _, fields in rows]


def test_a_large_body_is_stored_once(documents: Documents, worker: Worker) -> None:
    """The leader's, the followers' and the later duplicates' results all name the one body."""
    documents.open()
    body = body_of(SHARED_BYTES)
    answer(documents, worker, body, "a", "b", "c")
    documents.submit("d")

    assert documents.prepare(fingerprint="fp") == [b"CACHED"]
    assert stored(documents) == [(b"", b"fp")] * 4
    assert documents.client.hgetall(documents.keys.bodies("job")) == {b"fp": body}
    assert [(one.custom_id, one.body) for one in documents.results()] == [
        (custom_id, Body.decode(body)) for custom_id in "abcd"
    ]


def test_a_small_body_lies_in_each_result(documents: Documents, worker: Worker) -> None:
    """Below the limit one reading less is worth the bytes."""
    documents.open()
    body = body_of(SHARED_BYTES - 1)
    answer(documents, worker, body, "a", "b")

    assert stored(documents) == [(body, None)] * 2
    assert not documents.client.exists(documents.keys.bodies("job"))


def test_a_body_that_nobody_shares_lies_in_its_result(documents: Documents, worker: Worker) -> None:
    """Most documents have no duplicate, and pay nothing."""
    documents.open()
    body = body_of(SHARED_BYTES)
    answer(documents, worker, body, "a")

    assert stored(documents) == [(body, None)]


def test_each_job_keeps_its_own_copy(documents: Documents, worker: Worker) -> None:
    """Jobs end at different times: a follower in another job does not lose its answer."""
    documents.open()
    documents.open("other")
    body = body_of(SHARED_BYTES)
    documents.submit("a")
    documents.submit("b", job_id="other")
    documents.prepare(fingerprint="fp")
    (taken,) = worker.take()
    worker.begin(taken)
    worker.complete(taken, body=body)
    documents.scripts.call("seal", "job")

    assert documents.client.ttl(documents.keys.bodies("job")) > 0
    assert documents.client.ttl(documents.keys.bodies("other")) == -1

    documents.client.delete(*documents.client.keys(f"{documents.keys.job('job')}*"))

    assert [one.body for one in documents.results("other")] == [Body.decode(body)]


def test_a_failure_is_not_shared(documents: Documents, worker: Worker) -> None:
    """However large, a failed document's body is its own."""
    documents.open()
    documents.submit_all([("a", b"text"), ("b", b"text")])
    documents.prepare(fingerprint="fp")
    (taken,) = worker.take()
    worker.begin(taken)
    worker.complete(taken, outcome="expired", body=body_of(2 * SHARED_BYTES))

    assert [shared for _, shared in stored(documents)] == [None]
    assert documents.client.xlen(documents.ready()) == 1
