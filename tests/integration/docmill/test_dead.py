"""Dead letters on a real Redis: listed, read, put back, dropped."""

from typing import Any

import pytest

from docmill import Client, Job
from docmill.dead import DeadLetters
from docmill.keys import Keys
from docmill.link import Link
from tests.support.canned_worker import CannedWorker


@pytest.fixture
def letters(client: Client) -> DeadLetters:
    """The dead letters of the test's namespace."""
    return client.dead_letters()


def die(client: Client, worker: CannedWorker, job_id: str, codes: dict[str, str]) -> Job:
    """Submit a job whose documents, named by custom id, fail with these codes."""
    job = client.submit([(name, f"text {name}") for name in codes], prompt="Say", job_id=job_id)
    worker.prepare()
    for one, code in zip(worker.begin(), codes.values(), strict=True):
        worker.fail(*one, code=code)
    return job


def shown(found: Any) -> list[tuple[str, str, str]]:
    """Return what tells letters apart."""
    return [(letter.job_id, letter.custom_id, letter.code) for letter in found]


def test_letters_are_listed_by_job_and_code(
    client: Client, worker: CannedWorker, letters: DeadLetters
) -> None:
    """Filters leave out what is not asked for; the oldest comes first."""
    die(client, worker, "one", {"a": "non_finite_logits", "b": "delivery_limit"})
    die(client, worker, "two", {"a": "delivery_limit"})

    assert [
        ("one", "a", "non_finite_logits"),
        ("one", "b", "delivery_limit"),
        ("two", "a", "delivery_limit"),
    ] == shown(letters.list())
    assert ["a", "b"] == [letter.custom_id for letter in letters.list(job="one")]
    assert ["one", "two"] == [letter.job_id for letter in letters.list(codes=["delivery_limit"])]
    assert [] == list(letters.list(job="one", codes=["no_such_code"]))


def test_letters_are_listed_by_age(
    client: Client, letters: DeadLetters, redis_client: Any, keys: Keys
) -> None:
    """An hour ago, ten minutes ago and just now are told apart by Redis' clock."""
    now_s = redis_client.time()[0]
    for age_s in (3600, 600, 0):
        redis_client.xadd(keys.dead, {"reason": f"{age_s}"}, id=f"{(now_s - age_s) * 1000}-0")

    def codes(**limits: Any) -> list[str]:
        return [letter.code for letter in letters.list(**limits)]

    assert ["3600", "600", "0"] == codes()
    assert ["3600"] == codes(older_than_s=1800)
    assert ["600", "0"] == codes(newer_than_s=1800)
    assert ["600"] == codes(newer_than_s=1800, older_than_s=300)
    assert [] == codes(newer_than_s=300, older_than_s=1800)


def test_many_letters_are_read_page_by_page(
    letters: DeadLetters, redis_client: Any, keys: Keys
) -> None:
    """None is left out or given twice, whatever the page; one that comes meanwhile waits."""
    pipe = redis_client.pipeline(transaction=False)
    for number in range(600):
        pipe.xadd(
            keys.dead, {"i": str(number), "d": "x" * 1000}, id=f"{1000 + number // 7}-{number % 7}"
        )
    pipe.execute()
    read: list[str] = []
    for letter in letters.list():
        if not read:
            redis_client.xadd(keys.dead, {"i": "late"}, id=f"{2**60}-0")
        read.append(letter.request_id)

    assert [str(number) for number in range(600)] == read


def test_a_letter_is_read_whole(client: Client, worker: CannedWorker, letters: DeadLetters) -> None:
    """Fetched alone, it has its payload; listed, only the payload's size."""
    die(client, worker, "job", {"a": "non_finite_logits"})
    [listed] = letters.list()

    whole = letters.get(listed.id)

    assert whole is not None
    assert (None, b"text a", 6, 6) == (listed.payload, whole.payload, listed.size, whole.size)
    assert ("it cannot be answered", "0123456789ab", "canned-1", 1) == (
        whole.message,
        whole.trace,
        whole.consumer,
        whole.deliveries,
    )
    assert whole.at == pytest.approx(whole.submitted_at, abs=10)


@pytest.mark.parametrize("letter_id", ["1-1", "none", "", "-", f"{2**70}-0"])
def test_no_letter_is_none(letters: DeadLetters, letter_id: str) -> None:
    """An id that names nothing, or is no id at all, finds nothing and harms nothing."""
    assert letters.get(letter_id) is None
    assert {letter_id: "gone"} == letters.retry([letter_id])
    assert 0 == letters.drop([letter_id])


def test_a_retried_document_runs_again(
    client: Client, worker: CannedWorker, letters: DeadLetters
) -> None:
    """Its failure is gone from the job, which ends anew with the answer."""
    job = die(client, worker, "job", {"a": "delivery_limit"})
    assert ("finished", 1) == (job.status().state, job.status().failed)
    [letter] = letters.list()

    assert {letter.id: "ok"} == letters.retry([letter.id])

    assert ("running", 0, 1) == (job.status().state, job.status().failed, job.status().waiting)
    assert [] == list(letters.list())
    worker.complete()
    assert ["TEXT A"] == [result.text for result in job.results(timeout=5)]
    assert {letter.id: "gone"} == letters.retry([letter.id])


def test_a_letter_remembers_the_earlier_ones(
    client: Client, worker: CannedWorker, letters: DeadLetters
) -> None:
    """A document that dies again has a line for each time it died before."""
    die(client, worker, "job", {"a": "delivery_limit"})
    first = next(letters.list())
    letters.retry([first.id])
    for one in worker.begin():
        worker.fail(*one, code="generation_timeout")

    [letter] = letters.list()

    assert ("generation_timeout", 1) == (letter.code, letter.deliveries)
    [line] = letter.history
    assert first.id in line
    assert "delivery_limit" in line


def test_what_cannot_be_retried_says_why(
    client: Client, worker: CannedWorker, letters: DeadLetters, redis_client: Any, keys: Keys
) -> None:
    """A job that is gone, a backlog that is full, and an entry that is nobody's are told apart."""
    gone = die(client, worker, "gone", {"a": "delivery_limit"})
    die(client, worker, "full", {"b": "delivery_limit"})
    redis_client.xadd(keys.dead, {"anything": "at all"})
    redis_client.delete(keys.job(gone.id))
    redis_client.hset(keys.backlog, "max_docs", 0)

    ids = [letter.id for letter in letters.list()]

    assert ["expired", "full", "malformed"] == list(letters.retry(ids).values())
    assert ids == [letter.id for letter in letters.list()]


def test_a_dropped_letter_leaves_its_result(
    client: Client, worker: CannedWorker, letters: DeadLetters
) -> None:
    """The job still says that the document failed; nothing can be retried any more."""
    job = die(client, worker, "job", {"a": "delivery_limit", "b": "delivery_limit"})
    first, second = letters.list()

    assert 1 == letters.drop([first.id, first.id, "1-1"])

    assert [second.id] == [letter.id for letter in letters.list()]
    assert 2 == job.status().failed
    assert 2 == len(list(job.results(timeout=5)))


def test_many_letters_are_put_back_by_many_calls(
    client: Client, worker: CannedWorker, letters: DeadLetters
) -> None:
    """More than one call can carry go back, each once."""
    names = [str(number) for number in range(100)]
    job = die(client, worker, "job", dict.fromkeys(names, "delivery_limit"))

    assert {"ok"} == set(letters.retry(letter.id for letter in letters.list()).values())

    worker.complete(200)
    assert names == [result.custom_id for result in job.results(timeout=5)]


def test_letters_of_all_shards_are_one_list(
    redis_url: str, namespace: str, redis_client: Any
) -> None:
    """They are merged by age, and each id leads back to its own shard."""
    links = [Link(redis_url, namespace, 0.0, shard) for shard in (0, 2)]
    for number in range(4):  # equal ids in both shards
        key = links[number % 2].keys.dead
        redis_client.xadd(
            key, {"reason": str(number), "d": f"text {number}"}, id=f"{5 + number // 2}-0"
        )
    letters = DeadLetters(*links)

    ids = {letter.id: letter.code for letter in letters.list()}

    assert {"5-0": "0", "5-0@2": "1", "6-0": "2", "6-0@2": "3"} == ids
    whole = letters.get("6-0@2")
    assert whole is not None
    assert (b"text 3", "6-0@2") == (whole.payload, whole.id)
    assert {"5-0@2": "malformed", "5-0@1": "gone"} == letters.retry(["5-0@2", "5-0@1"])
    assert 3 == letters.drop(["5-0", "6-0", "6-0@2", "7-0@2", "6-0@9"])
    assert ["5-0@2"] == [letter.id for letter in letters.list()]
    for link in links:
        link.close()
