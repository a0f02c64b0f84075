"""Dead letters: what is given up is kept whole, can be tried again, and is counted once."""

from typing import Literal

import pytest
import redis

from tests.support.ready_documents import Documents
from tests.support.script_worker import FAILED, Taken, Worker


def bury(worker: Worker) -> Taken:
    """Give up the one document that is ready; returns what was delivered."""
    (taken,) = worker.take()
    worker.begin(taken)

    assert worker.bury(taken, trace="0123") == b"OK"

    return taken


def letters(documents: Documents) -> dict[str, dict[bytes, bytes]]:
    """Return the dead letters by id."""
    rows = documents.client.xrange(documents.keys.dead)
    return {letter_id.decode(): fields for letter_id, fields in rows}


def retry(documents: Documents, *ids: str) -> list[bytes]:
    """Call retry.lua; without ids, on every letter there is."""
    verdicts: list[bytes] = documents.scripts.call("retry", *(ids or letters(documents)))
    return verdicts


def keys_of_job(documents: Documents) -> list[bytes]:
    """Return the keys there are of the one job."""
    keys: list[bytes] = documents.client.keys(f"{documents.keys.job('job')}*")
    return keys


def page(documents: Documents, start: str = "-", count: int = 10) -> dict[str, dict[bytes, bytes]]:
    """Call dead.lua."""
    return {
        letter_id.decode(): dict(zip(flat[::2], flat[1::2], strict=True))
        for letter_id, flat in documents.scripts.call("dead", start, count)
    }


def test_a_letter_holds_the_entry_and_what_became_of_it(
    documents: Documents, worker: Worker
) -> None:
    """The entry's own fields are all there, beside who gave it up and why."""
    documents.put(["a"])
    _, _, entry = bury(worker)
    (letter,) = letters(documents).values()
    ((result, _),) = documents.client.xrange(documents.keys.results("job"))

    assert letter == {
        **entry,
        b"stream": documents.ready().encode(),
        b"consumer": b"w1",
        b"reason": b"decode_error",
        b"error": b"unreadable",
        b"trace": b"0123",
        b"result": result,
        b"history": b"",
    }
    assert [one.body for one in documents.results()] == [FAILED]
    assert documents.counts() == {"submitted": 1, "failed": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_only_the_owner_buries(documents: Documents, worker: Worker) -> None:
    """A worker whose entry was given to another writes no letter and no result."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.redeliver(taken)
    other = Worker(documents, "w2")
    other.take()

    assert worker.bury(taken) == b"LOST"
    assert letters(documents) == {}
    assert documents.counts() == {"submitted": 1}


@pytest.mark.parametrize("how", ["bury", "redeliver"])
def test_what_cannot_be_buried_is_kept(
    documents: Documents, worker: Worker, how: Literal["bury", "redeliver"]
) -> None:
    """FLD-L08: the entry is acknowledged after its letter is written, whatever fails before."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    documents.client.set(documents.keys.results("job"), "spoiled")

    def give_up() -> bytes:
        return worker.bury(taken) if how == "bury" else worker.redeliver(taken, limit=1)

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        give_up()
    documents.client.delete(documents.keys.results("job"))

    assert letters(documents) == {}
    assert give_up() == (b"OK" if how == "bury" else b"DEAD")
    assert give_up() == b"LOST"
    assert [letter[b"i"] for letter in letters(documents).values()] == [b"job.a"]
    assert documents.num_results() == 1
    assert documents.counts() == {"submitted": 1, "failed": 1}
    assert documents.client.xlen(documents.ready()) == 0


def test_a_page_shows_letters_without_their_payload(documents: Documents, worker: Worker) -> None:
    """Listing tells the payload's size; the payload itself may be large and stays where it is."""
    documents.put(["a"])
    _, _, entry = bury(worker)
    documents.submit("b", document=b"12345")
    worker.bury(worker.take(stream=documents.keys.intake("batch"))[0])
    ready, intake = page(documents).values()

    assert b"p" not in ready
    assert b"d" not in intake
    assert (ready[b"size"], intake[b"size"]) == (str(len(entry[b"p"])).encode(), b"5")
    assert (ready[b"reason"], ready[b"trace"]) == (b"decode_error", b"0123")


def test_pages_follow_each_other(documents: Documents, worker: Worker) -> None:
    """The next page starts after the last letter seen."""
    documents.put("abc")
    for taken in worker.take():
        worker.bury(taken)
    first, second, third = letters(documents)

    assert list(page(documents, count=2)) == [first, second]
    assert list(page(documents, start=f"({second}")) == [third]
    assert page(documents, start=f"({third}") == {}


@pytest.mark.parametrize("stage", ["intake", "ready"])
def test_a_retried_document_takes_the_place_of_its_failure(
    documents: Documents, worker: Worker, stage: str
) -> None:
    """The failed result goes, the finished job lasts again, and the next answer is the only one."""
    documents.put(["a"] if stage == "ready" else [])
    documents.submit("a")
    stream = documents.ready() if stage == "ready" else documents.keys.intake("batch")
    (taken,) = worker.take(stream=stream)
    worker.bury(taken)
    documents.scripts.call("seal", "job")

    assert documents.client.ttl(documents.keys.job("job")) > 0
    assert retry(documents) == [b"OK"]
    assert documents.results() == []
    assert documents.counts() == {"submitted": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 4}
    assert {documents.client.ttl(key) for key in keys_of_job(documents)} == {-1}

    ((_, entry),) = documents.client.xrange(stream)

    assert entry == {**taken[2], b"n": b"1"}

    documents.prepare()
    (again,) = worker.take()
    worker.begin(again)
    worker.complete(again)

    assert [result.body.outcome for result in documents.results()] == ["succeeded"]
    assert documents.counts() == {"submitted": 1, "succeeded": 1}
    assert documents.client.ttl(documents.keys.job("job")) > 0
    assert letters(documents) == {}


def test_a_letter_is_retried_once(documents: Documents, worker: Worker) -> None:
    """Naming a letter twice, or again later, brings its document back once."""
    documents.put(["a"])
    bury(worker)
    (letter,) = letters(documents)

    assert retry(documents, letter, letter) == [b"OK", b"GONE"]
    assert retry(documents, letter) == [b"GONE"]
    assert documents.client.xlen(documents.ready()) == 1
    assert documents.backlog() == {"docs": 1, "bytes": 4}


def test_each_death_is_remembered(documents: Documents, worker: Worker) -> None:
    """A document's later letters tell of its earlier ones, one line each."""
    documents.put(["a"])
    earlier: list[str] = []
    lines: list[str] = []
    for num_deaths in range(3):
        bury(worker)
        ((letter_id, letter),) = letters(documents).items()
        lines = letter[b"history"].decode().splitlines()

        assert [line.split()[0] for line in lines] == earlier
        assert len(lines) == num_deaths

        earlier.append(letter_id)
        retry(documents)

    assert lines[0].endswith("decode_error after 1 deliveries, last w1: unreadable")


def test_a_full_backlog_leaves_the_letter(documents: Documents, worker: Worker) -> None:
    """What cannot be taken back now can be retried later."""
    documents.put(["a"])
    bury(worker)
    documents.submit("b")
    documents.client.hset(documents.keys.backlog, "max_docs", 1)

    assert retry(documents) == [b"FULL"]
    assert documents.counts() == {"submitted": 2, "failed": 1}
    assert len(documents.results()) == 1

    documents.client.hset(documents.keys.backlog, "max_docs", 2)

    assert retry(documents) == [b"OK"]


def test_letters_beyond_the_limit_wait(documents: Documents, worker: Worker) -> None:
    """Of many letters in one call, as many come back as the backlog takes."""
    documents.put("abc")
    for taken in worker.take():
        worker.bury(taken)
    documents.client.hset(documents.keys.backlog, "max_bytes", 8)

    assert retry(documents) == [b"OK", b"OK", b"FULL"]
    assert documents.backlog() == {"docs": 2, "bytes": 8}


def test_an_empty_backlog_takes_any_one_letter_back(documents: Documents, worker: Worker) -> None:
    """A document above the limit in bytes, accepted when nothing waited, can be retried then."""
    documents.client.hset(documents.keys.backlog, "max_bytes", 2)
    documents.put(["a"])
    bury(worker)

    assert retry(documents) == [b"OK"]


@pytest.mark.parametrize("how", ["gone", "cancelled", "singly cancelled"])
def test_a_document_that_nobody_waits_for_is_not_retried(
    documents: Documents, worker: Worker, how: str
) -> None:
    """With its job gone or itself cancelled, the document stays as dead as it is."""
    documents.put(["a", "b"])
    bury_first, _ = worker.take()
    worker.bury(bury_first)
    if how == "gone":
        documents.client.delete(*keys_of_job(documents))
    else:
        documents.scripts.call("cancel", "job", *(["a"] if how == "singly cancelled" else []))
    num_results = documents.num_results()

    assert retry(documents) == [b"EXPIRED"]
    assert documents.num_results() == num_results
    assert len(letters(documents)) == 1
    assert documents.backlog()["docs"] == 1
    assert documents.client.xlen(documents.ready()) == 1


def test_a_job_id_used_anew_gets_no_documents_of_the_old_job(
    documents: Documents, worker: Worker
) -> None:
    """A letter of an expired job is not put into another job that has its id."""
    documents.put(["a"])
    bury(worker)
    documents.client.delete(*keys_of_job(documents))
    documents.open()
    documents.submit("a")

    assert retry(documents) == [b"EXPIRED"]
    assert documents.counts() == {"submitted": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 4}


@pytest.mark.parametrize(
    "spoiled",
    [
        {},
        {"i": "r", "j": "job", "h": "h", "b": "1", "n": "1", "result": "1-1"},
        {"i": "r", "j": "job", "h": "h", "b": "1", "n": "1", "stream": "{elsewhere}:ready:x"},
        {"stream": "", "i": "r", "j": "job", "h": "h", "b": "many", "n": "1"},
    ],
)
def test_what_tells_no_document_cannot_be_retried(
    documents: Documents, worker: Worker, spoiled: dict[str, str]
) -> None:
    """A letter without the fields of a document is left alone, and those beside it are retried."""
    documents.put(["a"])
    documents.client.xadd(documents.keys.dead, {"hello": "world", **spoiled})
    bury(worker)

    assert retry(documents) == [b"MALFORMED", b"OK"]
    assert len(letters(documents)) == 1
    assert documents.client.exists("{elsewhere}:ready:x") == 0


def test_a_result_that_is_no_entry_id_cannot_be_retried(
    documents: Documents, worker: Worker
) -> None:
    """A letter that somebody wrote by hand does not keep the others from their retry."""
    documents.put(["a", "b"])
    first, second = worker.take()
    worker.bury(first)
    (letter,) = letters(documents).values()
    documents.client.delete(documents.keys.dead)
    documents.client.xadd(documents.keys.dead, {**letter, b"result": b"yes"})
    worker.bury(second)

    assert retry(documents) == [b"MALFORMED", b"OK"]


def test_dropping_leaves_the_failed_result(documents: Documents, worker: Worker) -> None:
    """Only the letter goes, once; the job still says what became of the document."""
    documents.put(["a", "b"])
    for taken in worker.take():
        worker.bury(taken)
    first, second = letters(documents)

    assert documents.scripts.call("drop_dead", first, "1-1") == 1
    assert documents.scripts.call("drop_dead", first) == 0
    assert list(letters(documents)) == [second]
    assert retry(documents, first) == [b"GONE"]
    assert documents.counts() == {"submitted": 2, "failed": 2}
    assert documents.num_results() == 2


def test_a_dead_leader_leaves_its_followers(documents: Documents, worker: Worker) -> None:
    """Who waited for its answer tries itself, and the leader, retried, waits for that answer."""
    documents.open()
    documents.submit_all([("a", b"text"), ("b", b"text")])

    assert documents.prepare(fingerprint="fp") == [b"READY", b"FOLLOWS"]

    bury(worker)

    assert retry(documents) == [b"OK"]

    new_leader, retried = worker.take()

    assert worker.begin(new_leader, retried) == [b"RUN", b"FOLLOWS"]
    assert worker.complete(retried, new_leader) == [b"LOST", b"OK"]
    assert [one.custom_id for one in documents.results()] == ["b", "a"]
    assert documents.client.exists(documents.keys.leader("fp")) == 0


def test_a_document_of_a_job_that_is_gone_is_buried_without_a_result(
    documents: Documents, worker: Worker
) -> None:
    """The letter is all that is left: no key of the job comes back."""
    documents.put(["a"])
    (taken,) = worker.take()
    documents.client.delete(*keys_of_job(documents))

    assert worker.bury(taken) == b"OK"
    assert [letter[b"result"] for letter in letters(documents).values()] == [b""]
    assert keys_of_job(documents) == []
    assert documents.backlog() == {"docs": 0, "bytes": 0}
