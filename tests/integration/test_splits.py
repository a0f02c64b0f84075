"""Documents answered in parts: one document to everybody outside, whatever becomes of a part."""

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
import redis

from docmill.keys import GROUP, Keys
from docmill.wire import Body, Header
from tests.support.ready_documents import NOW, Documents, Result
from tests.support.script_worker import FAILED, Taken, Worker
from workers.streams import ensure_groups

PARTS = "job~job.a"
SHARED_BYTES = 1024
LATE = Body.model_validate({"outcome": "expired", "error": {"code": "expired", "message": "late"}})


def intake(documents: Documents, worker: Worker) -> list[Taken]:
    """Let a worker take whatever waits to be prepared."""
    return worker.take(stream=documents.keys.intake("batch"))


def divide(documents: Documents, worker: Worker, *texts: str, **submitted: Any) -> None:
    """Submit the document `a` of the job `job` and split it."""
    documents.open()
    documents.submit("a", document=b"whole", **submitted)
    (taken,) = intake(documents, worker)

    assert worker.split(taken, *texts) == b"SPLIT"


def begun(documents: Documents, worker: Worker, **prepared: Any) -> list[Taken]:
    """Make parts ready and let an engine begin them."""
    documents.prepare(**prepared)
    taken = worker.take()

    assert set(worker.begin(*taken)) <= {b"RUN"}

    return taken


def answer(worker: Worker, *taken: Taken) -> None:
    """Answer each of these, saying which it is."""
    for one in taken:
        worker.complete(one, body=Body(text=one[2][b"i"].decode()).encode())


def answers(fields: dict[bytes, bytes]) -> list[Body]:
    """Return the answers of its parts that an entry brings."""
    framed, bodies = fields[b"a"], []
    while framed:
        end = 4 + int.from_bytes(framed[:4], "big")
        bodies.append(Body.decode(framed[4:end]))
        framed = framed[end:]
    return bodies


def texts(fields: dict[bytes, bytes]) -> list[str | None]:
    """Return the answers' texts."""
    return [body.text for body in answers(fields)]


def letters(documents: Documents) -> list[dict[bytes, bytes]]:
    """Return the dead letters."""
    return [fields for _, fields in documents.client.xrange(documents.keys.dead)]


def remains(documents: Documents) -> list[bytes]:
    """Return the keys there are of parts."""
    of_parts: list[bytes] = documents.client.keys(f"{documents.keys.prefix}:job:job~*")
    splits: list[bytes] = documents.client.keys(documents.keys.splits("job"))
    return of_parts + splits


def test_a_document_is_answered_in_parts(documents: Documents, worker: Worker) -> None:
    """It waits while its parts are answered, comes back with the answers, and is counted once."""
    divide(documents, worker, "one", "three", "2")

    assert documents.counts() == {"submitted": 1}
    assert documents.counts(PARTS) == {"submitted": 3}
    assert documents.backlog() == {"docs": 4, "bytes": 5 + 9}
    assert documents.client.zrange(documents.keys.jobs, 0, -1) == [b"job"]

    parts = begun(documents, worker)

    assert documents.counts() == {"submitted": 1}

    answer(worker, *reversed(parts))
    (whole,) = intake(documents, worker)

    assert texts(whole[2]) == ["job.a.0.1", "job.a.0.2", "job.a.0.3"]
    assert (whole[2][b"d"], whole[2][b"n"], whole[2][b"l"]) == (b"whole", b"1", b"1")
    assert documents.backlog() == {"docs": 1, "bytes": 5}
    assert remains(documents) == []

    worker.redeliver(whole)
    (whole,) = begun(documents, worker)
    worker.complete(whole)

    assert documents.counts() == {"submitted": 1, "succeeded": 1}
    assert [one.custom_id for one in documents.results()] == ["a"]
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_the_document_goes_on_with_the_header_given(documents: Documents, worker: Worker) -> None:
    """What preprocessing found in it is kept while its parts are answered."""
    documents.open()
    documents.submit("a")
    (taken,) = intake(documents, worker)
    told = Header.decode(taken[2][b"h"]).model_copy(update={"submitted_at": NOW + 1}).encode()
    worker.split((*taken[:2], {**taken[2], b"h": told}), "1")
    answer(worker, *begun(documents, worker))
    (whole,) = intake(documents, worker)

    assert whole[2][b"h"] == told


def test_only_the_owner_splits(documents: Documents, worker: Worker) -> None:
    """A worker whose entry was given to another writes nothing."""
    documents.open()
    documents.submit("a")
    (taken,) = intake(documents, worker)
    worker.redeliver(taken)

    assert worker.split(taken, "1", "2") == b"LOST"
    assert remains(documents) == []
    assert documents.backlog() == {"docs": 1, "bytes": 4}


@pytest.mark.parametrize("custom_ids", [[], ["a"]])
def test_what_was_cancelled_is_not_split(
    documents: Documents, worker: Worker, custom_ids: list[str]
) -> None:
    """It ends where it is met."""
    documents.open()
    documents.submit("a")
    (taken,) = intake(documents, worker)
    documents.scripts.call("cancel", "job", *custom_ids)

    assert worker.split(taken, "1", "2") == b"DROPPED"
    assert remains(documents) == []
    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_equal_parts_share_a_large_answer(documents: Documents, worker: Worker) -> None:
    """A body that is stored once for several parts comes back for each."""
    divide(documents, worker, "1", "1", "1")
    body = Body(text="x" * SHARED_BYTES)
    (leader,) = begun(documents, worker, fingerprint="fp")
    worker.complete(leader, body=body.encode())
    (whole,) = intake(documents, worker)

    assert answers(whole[2]) == [body] * 3


def test_a_part_follows_another_documents_equal_part(documents: Documents, worker: Worker) -> None:
    """Parts share answers as documents do; each document gets the answers of all its own."""
    divide(documents, worker, "same", "own")
    documents.submit("b")
    documents.submit("c", document=b"same")
    (b, *_) = [one for one in intake(documents, worker) if one[2][b"i"] == b"job.b"]
    worker.split(b, "other", "same")
    documents.client.xgroup_setid(documents.keys.intake("batch"), GROUP, "0")

    assert sorted(documents.prepare(fingerprint=str)) == [b"FOLLOWS"] * 2 + [b"READY"] * 3

    taken = worker.take()
    worker.begin(*taken)
    answer(worker, *taken)
    first, second = intake(documents, worker)

    assert texts(first[2]) == ["job.a.0.1", "job.a.0.2"]
    assert texts(second[2]) == ["job.b.0.1", "job.a.0.1"]
    assert documents.counts() == {"submitted": 3, "succeeded": 1}


def test_a_failed_part_fails_its_document_once(documents: Documents, worker: Worker) -> None:
    """One dead letter, of the document itself, says which part it was and what its worker said."""
    divide(documents, worker, "1", "2", "3")
    first, second, third = begun(documents, worker)
    worker.bury(third, trace="later")
    worker.bury(second, trace="0123")

    assert letters(documents) == []
    assert documents.counts() == {"submitted": 1}

    answer(worker, first)
    (letter,) = letters(documents)
    ((result, _),) = documents.client.xrange(documents.keys.results("job"))

    assert letter == {
        **{name: letter[name] for name in (b"h",)},
        b"i": b"job.a",
        b"j": b"job",
        b"b": b"5",
        b"n": b"1",
        b"d": b"whole",
        b"stream": documents.keys.intake("batch").encode(),
        b"consumer": b"w1",
        b"reason": b"delivery_limit",
        b"error": b"part 2 of 3: given up",
        b"trace": b"0123",
        b"result": result,
        b"history": b"",
    }
    assert [one.body.error for one in documents.results()] == [
        FAILED.error and FAILED.error.model_copy(update={"message": "part 2 of 3: given up"})
    ]
    assert documents.counts() == {"submitted": 1, "failed": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert remains(documents) == []


def test_a_retried_document_runs_its_parts_anew(documents: Documents, worker: Worker) -> None:
    """Those that had an answer get it from the store; the others run."""
    divide(documents, worker, "1", "2")
    first, second = begun(documents, worker, fingerprint=str)
    answer(worker, first)
    worker.bury(second)
    ((letter, _),) = documents.client.xrange(documents.keys.dead)

    assert documents.scripts.call("retry", letter) == [b"OK"]
    assert documents.counts() == {"submitted": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 5}

    (whole,) = intake(documents, worker)

    assert b"a" not in whole[2]
    assert worker.split(whole, "1", "2") == b"SPLIT"
    assert documents.prepare(fingerprint=str) == [b"CACHED", b"READY"]

    (second,) = worker.take()
    worker.begin(second)
    answer(worker, second)
    (whole,) = intake(documents, worker)

    assert texts(whole[2]) == ["job.a.0.1", "job.a.0.2"]


def test_a_refused_part_refuses_its_document(documents: Documents, worker: Worker) -> None:
    """What preprocessing refuses is the document's own fault: no letter, as of any refused one."""
    divide(documents, worker, "1", "2")
    first, second = intake(documents, worker)
    body = Body.model_validate({"outcome": "failed", "error": {"code": "empty", "message": "nil"}})
    told: list[str | bytes] = []
    for stream, entry, fields in (first, second):
        told += [stream, entry, *(fields[name] for name in (b"i", b"j", b"b", b"h"))]
        told += ["settle", "failed", body.encode(), "", "0"]

    assert documents.scripts.call("prepare", GROUP, "w1", 0, *told) == [b"SETTLED", b"SETTLED"]

    (result,) = documents.results()

    assert (result.how, str(result.body.error)) == ("rejected", "empty: part 1 of 2: nil")
    assert letters(documents) == []
    assert documents.counts() == {"submitted": 1, "failed": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


@pytest.mark.parametrize("where", ["intake", "ready", "parked", "engine"])
def test_a_deadline_that_passes_for_a_part_ends_its_document(
    documents: Documents, worker: Worker, where: str
) -> None:
    """It has expired itself, wherever its parts were."""
    divide(documents, worker, "1", "2", deadline_at=1.0)
    stream = documents.ready()
    if where == "intake":
        stream = documents.keys.intake("batch")
    elif where == "parked":
        documents.scripts.call("pause", "job", 1)
        documents.prepare()
        worker.begin(*worker.take())
        stream = documents.keys.parked(PARTS)
    elif where == "engine":
        worker.complete(*begun(documents, worker), outcome="expired", body=LATE.encode())
    else:
        documents.prepare()
    documents.scripts.call("expire", stream, GROUP, "0", 100, LATE.encode())

    assert documents.results() == [
        Result(
            "a",
            "rejected",
            Body.model_validate(
                {
                    "outcome": "expired",
                    "error": {"code": "expired", "message": "part 1 of 2: late"},
                }
            ),
        )
    ]
    assert documents.counts() == {"submitted": 1, "expired": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert remains(documents) == []
    assert letters(documents) == []


@pytest.mark.parametrize("custom_ids", [[], ["a"]])
def test_cancelling_reaches_the_parts(
    documents: Documents, worker: Worker, custom_ids: list[str]
) -> None:
    """None is begun any more; what runs still ends, and then the document does."""
    divide(documents, worker, "1", "2", "3")
    documents.prepare()
    runs, waits, waits_too = worker.take()
    worker.begin(runs)
    documents.scripts.call("cancel", "job", *custom_ids)
    documents.scripts.call("seal", "job")

    assert documents.client.hexists(documents.keys.job(PARTS), "cancelled_at")
    assert worker.begin(waits) == [b"DROPPED"]

    documents.scripts.call("cancel", "job")  # once more, for all
    worker.complete(runs, outcome="cancelled")

    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 1}
    assert documents.client.ttl(documents.keys.job(PARTS)) == -1
    assert worker.begin(waits_too) == [b"DROPPED"]
    assert remains(documents) == []
    assert documents.client.ttl(documents.keys.job("job")) > 0
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert documents.results() == []
    assert letters(documents) == []


def test_parts_are_cancelled_once(documents: Documents, worker: Worker) -> None:
    """Named again with others, a cancelled document's parts keep count of what lies somewhere."""
    divide(documents, worker, "1", "2", "3")
    documents.submit("b")
    documents.prepare()
    worker.begin(*worker.take(1))
    documents.scripts.call("cancel", "job", "a")
    documents.scripts.call("cancel", "job", "a", "b")

    assert documents.client.hget(documents.keys.job(PARTS), "left") == b"2"


def test_cancelling_other_documents_leaves_the_parts_alone(
    documents: Documents, worker: Worker
) -> None:
    """Singly means singly."""
    divide(documents, worker, "1")
    documents.submit("b")

    assert documents.scripts.call("cancel", "job", "b") == 1

    answer(worker, *begun(documents, worker))

    assert documents.client.xlen(documents.keys.intake("batch")) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_pausing_reaches_the_parts(documents: Documents, worker: Worker, when: str) -> None:
    """Parts of a paused job's document rest as any document of it, and go on with it."""
    documents.open()
    documents.submit("a")
    (whole,) = intake(documents, worker)
    if when == "before":
        documents.scripts.call("pause", "job", 1)
    worker.split(whole, "1", "2")
    if when == "after":
        documents.scripts.call("pause", "job", 1)
    documents.prepare()

    assert worker.begin(*worker.take()) == [b"PARKED", b"PARKED"]
    assert documents.scripts.call("unpark", 10) == 0
    assert documents.scripts.call("pause", "job", 0) == 1
    assert documents.scripts.call("unpark", 10) == 2

    taken = worker.take()

    assert worker.begin(*taken) == [b"RUN", b"RUN"]

    answer(worker, *taken)

    assert documents.client.xlen(documents.keys.intake("batch")) == 1
    assert documents.client.smembers(documents.keys.parked_jobs) == set()


def test_many_answers_are_combined_in_rounds(documents: Documents, worker: Worker) -> None:
    """A document that came back with answers may be split again; each round has its own parts."""
    divide(documents, worker, "1", "2", "3")
    answer(worker, *begun(documents, worker))
    (whole,) = intake(documents, worker)

    assert worker.split(whole, "1 and 2", "3") == b"SPLIT"

    answer(worker, *begun(documents, worker))
    (whole,) = intake(documents, worker)

    assert texts(whole[2]) == ["job.a.1.1", "job.a.1.2"]
    assert whole[2][b"l"] == b"2"
    assert remains(documents) == []
    assert documents.backlog() == {"docs": 1, "bytes": 5}


def test_a_later_rounds_retry_keeps_the_answers_before(
    documents: Documents, worker: Worker
) -> None:
    """What had been answered before the round that failed is not asked again."""
    divide(documents, worker, "1", "2")
    answer(worker, *begun(documents, worker))
    (whole,) = intake(documents, worker)
    worker.split(whole, "1 and 2")
    (part,) = begun(documents, worker)
    worker.bury(part)
    ((letter, page),) = documents.scripts.call("dead", "-", 10)

    assert b"a" not in page[::2]  # a payload

    documents.scripts.call("retry", letter)
    (whole,) = intake(documents, worker)

    assert texts(whole[2]) == ["job.a.0.1", "job.a.0.2"]
    assert whole[2][b"l"] == b"1"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_part_without_its_answer_is_not_passed_over(
    documents: Documents, worker: Worker, lost: int
) -> None:
    """If a part's result is gone, its document fails rather than be answered without it."""
    divide(documents, worker, "1", "2", "3", "4")
    *parts, last = begun(documents, worker)
    answer(worker, *parts)
    results = documents.keys.results(PARTS)
    documents.client.xdel(results, documents.client.xrange(results)[lost - 1][0])
    answer(worker, last)
    (letter,) = letters(documents)

    assert letter[b"reason"] == b"result_expired"
    assert letter[b"error"] == b"part %d of 4: its answer is gone" % lost
    assert documents.counts() == {"submitted": 1, "failed": 1}


def test_a_part_whose_shared_answer_is_gone_has_none(documents: Documents, worker: Worker) -> None:
    """A result that names a body which is not there is no answer."""
    divide(documents, worker, "same", "same", "3")
    documents.prepare(fingerprint=str)
    first, last = worker.take()
    worker.begin(first, last)
    worker.complete(first, body=Body(text="x" * SHARED_BYTES).encode())
    documents.client.delete(documents.keys.bodies(PARTS))
    answer(worker, last)
    (letter,) = letters(documents)

    assert letter[b"error"] == b"part 1 of 3: its answer is gone"


def test_a_document_whose_job_is_gone_leaves_nothing(documents: Documents, worker: Worker) -> None:
    """Its parts end, and with the last of them it does."""
    divide(documents, worker, "1", "2")
    parts = begun(documents, worker)
    job = documents.keys.job("job")
    documents.client.delete(job, *documents.client.keys(f"{job}:*"))
    answer(worker, *parts)

    assert intake(documents, worker) == []
    assert remains(documents) == []
    assert documents.client.exists(job) == 0
    assert documents.backlog() == {"docs": 0, "bytes": 0}


@pytest.fixture
def roomy(small_redis: Any, keys: Keys) -> Iterator[Documents]:
    """A shard in a Redis whose memory is not full yet."""
    documents = Documents(small_redis, keys)
    ensure_groups(small_redis, [documents.keys.intake("batch"), documents.ready()])
    yield documents
    small_redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("end", ["complete", "bury", "redeliver", "expire", "cancel"])
def test_the_last_part_ends_while_memory_is_full(roomy: Documents, end: str) -> None:
    """No document is lost between its parts' end and its own."""
    worker = Worker(roomy)
    divide(roomy, worker, "1", "2", deadline_at=1.0)
    first, last = begun(roomy, worker)
    answer(worker, first)
    if end in ("expire", "cancel"):
        worker.redeliver(last, counts=0)
    roomy.client.config_set("maxmemory", 1)
    match end:
        case "complete":
            answer(worker, last)
        case "bury":
            worker.bury(last)
        case "redeliver":
            assert worker.redeliver(last, limit=1) == b"DEAD"
        case "expire":
            roomy.scripts.call("expire", last[0], GROUP, "0", 100, LATE.encode())
        case "cancel":
            roomy.scripts.call("cancel", "job", "a")

    outcomes = {"bury": "failed", "redeliver": "failed", "expire": "expired", "cancel": "cancelled"}
    if end == "complete":
        assert roomy.client.xlen(roomy.keys.intake("batch")) == 1
    else:
        assert roomy.counts() == {"submitted": 1, outcomes[end]: 1}
    assert len(letters(roomy)) == (end in ("bury", "redeliver"))
    assert roomy.client.exists(roomy.keys.splits("job")) == 0


def test_splitting_needs_no_free_memory(roomy: Documents) -> None:
    """A document that is split while memory is full is split whole."""
    worker = Worker(roomy)
    roomy.open()
    roomy.submit("a")
    (taken,) = intake(roomy, worker)
    roomy.client.config_set("maxmemory", 1)

    assert worker.split(taken, "1", "2") == b"SPLIT"

    answer(worker, *begun(roomy, worker))

    assert roomy.client.xlen(roomy.keys.intake("batch")) == 1


@pytest.mark.parametrize("key", ["whole", "results", "splits"])
def test_spoiled_parts_disturb_no_other_document(
    documents: Documents, worker: Worker, key: str
) -> None:
    """What somebody wrote over one document's parts costs nobody else their end."""
    documents.open()
    for custom_id in "ab":
        documents.submit(custom_id)
    for taken in intake(documents, worker):
        worker.split(taken, "1")
    spoiled = (
        documents.keys.splits("job") if key == "splits" else f"{documents.keys.job(PARTS)}:{key}"
    )
    documents.submit("c")
    taken_all = begun(documents, worker)
    if key != "results":
        documents.client.delete(spoiled)
        documents.client.set(spoiled, "spoiled")

    assert worker.complete(*taken_all) == [b"OK"] * 3
    assert documents.counts() == {"submitted": 3, "succeeded": 1}

    came_back = [fields[b"i"] for _, _, fields in intake(documents, worker)]

    assert b"job.b" in came_back
    assert documents.backlog()["docs"] == 2


def test_spoiled_splits_keep_nobody_from_steering(documents: Documents, worker: Worker) -> None:
    """A job is paused and cancelled all the same; a document that cannot be split stays whole."""
    documents.open()
    documents.submit("a")
    (taken,) = intake(documents, worker)
    documents.client.set(documents.keys.splits("job"), "spoiled")

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        worker.split(taken, "1", "2")

    assert documents.backlog() == {"docs": 1, "bytes": 4}
    assert not documents.client.exists(documents.keys.job(PARTS))
    assert worker.redeliver(taken) == b"BACK"
    assert documents.scripts.call("pause", "job", 1) == 1
    assert documents.scripts.call("pause", "job", 0) == 1
    assert documents.scripts.call("cancel", "job", "a") == 1
    assert documents.scripts.call("cancel", "job") == 1


def test_a_job_of_parts_that_is_gone_is_not_brought_back(
    documents: Documents, worker: Worker
) -> None:
    """Steering a job creates no key for parts that somebody deleted."""
    divide(documents, worker, "1")
    documents.client.delete(documents.keys.job(PARTS))
    documents.scripts.call("pause", "job", 1)

    assert not documents.client.exists(documents.keys.job(PARTS))

    documents.scripts.call("pause", "job", 0)
    documents.scripts.call("cancel", "job")

    assert not documents.client.exists(documents.keys.job(PARTS))


def test_a_failure_is_told_whatever_the_parts_answers_look_like(
    documents: Documents, worker: Worker
) -> None:
    """Answers may be compressed, short, or look like numbers: none passes for a failure."""
    divide(documents, worker, "1", "2", "3", "4")
    odd = [Body(text="x" * 10_000).encode(), msgpack.packb(7), msgpack.packb([1]), b"\xc1"]
    for taken, body in zip(begun(documents, worker), odd, strict=True):
        worker.complete(taken, body=body)
    (whole,) = intake(documents, worker)

    assert all(body in whole[2][b"a"] for body in odd)
    assert letters(documents) == []
