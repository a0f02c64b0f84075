"""Pausing, resuming, cancelling and retrying a job on a real Redis."""

import asyncio
import itertools
from typing import Any

import pytest

from docmill import AsyncClient, Client, Job, RetryReport
from docmill.errors import JobCancelled, JobNotFound, JobRejected, ResultTimeout
from docmill.keys import Keys
from docmill.scripts import Scripts
from docmill.wire import Body
from tests.support.canned_worker import CannedWorker, answering


@pytest.fixture
def scripts(redis_client: Any, keys: Keys) -> Scripts:
    """The scripts that the control process calls."""
    return Scripts(redis_client, keys.prefix)


def a_job(client: Client, *names: str, job_id: str = "job") -> Job:
    """Submit documents that hold their own names."""
    return client.submit([(name, name) for name in names], prompt="Say", job_id=job_id)


def answers(job: Job) -> dict[str, str | None]:
    """Return all results by custom id: the text, or the error's code."""
    return {
        result.custom_id: result.error.code if result.error else result.text
        for result in job.results(timeout=5)
    }


def test_a_paused_job_rests_and_goes_on(
    client: Client, worker: CannedWorker, scripts: Scripts
) -> None:
    """Nothing is begun while it is paused; what ran ends; afterwards all get their answers."""
    job = a_job(client, "a", "b", "c")
    worker.prepare()
    running = worker.begin(1)

    assert job.pause()
    assert not job.pause()
    assert [] == worker.begin()
    for one in running:
        worker.answer(*one)

    paused = job.status()
    assert ("paused", 1, 2, 0) == (paused.state, paused.done, paused.waiting, paused.running)
    assert job.resume()
    assert not job.resume()
    assert "running" == job.status().state
    scripts.call("unpark", 100)
    worker.complete()
    assert {"a": "A", "b": "B", "c": "C"} == answers(job)


def test_readers_wait_out_a_pause(client: Client, worker: CannedWorker) -> None:
    """Results and wait end neither with the pause nor before their time; the reason is told."""
    job = a_job(client, "a")
    job.pause()

    with pytest.raises(ResultTimeout, match="paused"):
        next(job.results(timeout=0.05))
    with pytest.raises(ResultTimeout):
        job.wait(progress=False, timeout=0.01)
    job.resume()
    worker.step()
    assert {"a": "A"} == answers(job)


def test_an_ended_job_cannot_be_paused(client: Client, worker: CannedWorker) -> None:
    """There is nothing to hold back, and the job stays finished."""
    job = a_job(client, "a")
    worker.step()

    assert not job.pause()
    assert "finished" == job.status().state


def test_single_documents_are_cancelled(client: Client, worker: CannedWorker) -> None:
    """Only those that are named go; the rest is answered, and the counts add up."""
    job = a_job(client, "a", "b", "c")

    assert 2 == job.cancel(["a", "c", "no such id"])
    assert 0 == job.cancel(["a"])
    worker.step()

    assert {"b": "B"} == answers(job)
    status = job.status()
    assert ("finished", 1, 2) == (status.state, status.succeeded, status.cancelled)


def test_a_document_that_is_done_keeps_its_answer(client: Client, worker: CannedWorker) -> None:
    """Cancelling it changes nothing."""
    job = a_job(client, "a", "b")
    worker.step(1)
    job.cancel(["a"])
    worker.step()

    assert {"a": "A", "b": "B"} == answers(job)
    assert 0 == job.status().cancelled


def test_many_ids_are_cancelled_by_many_calls(client: Client, worker: CannedWorker) -> None:
    """More ids than one call carries are all taken back."""
    names = [f"d{number}" for number in range(2500)]
    job = a_job(client, *names)

    assert 2400 == job.cancel(iter(names[100:]))
    for _ in range(5):
        worker.step(500)
    assert set(names[:100]) == set(answers(job))


def test_no_ids_cancel_nothing(client: Client) -> None:
    """An empty list is not the whole job, and a single string is a mistake."""
    job = a_job(client, "a", "b")

    assert 0 == job.cancel([])
    with pytest.raises(JobRejected, match="several"):
        job.cancel("ab")
    with pytest.raises(JobRejected, match="several"):
        job.retry(codes="delivery_limit")
    assert 2 == job.status().waiting


def fail(worker: CannedWorker, *codes: str) -> None:
    """Give up what is ready, with these codes in turn."""
    worker.prepare()
    for one, code in zip(worker.begin(), codes, strict=True):
        worker.fail(*one, code=code)


def test_only_what_failed_is_retried(client: Client, worker: CannedWorker) -> None:
    """Answers stay, failures run again, and a refused document is counted, not forgotten."""
    job = client.submit([("good", "good"), ("bad", "bad"), ("empty", "")], prompt="Say")
    worker.prepare()
    good, bad = worker.begin()
    worker.answer(*good)
    worker.fail(*bad)
    assert 2 == job.status().failed

    report = job.retry()

    assert RetryReport(put_back=1, refused=1) == report
    assert not report.is_complete
    worker.complete()
    assert {"good": "GOOD", "bad": "BAD", "empty": "empty_document"} == answers(job)


def test_failures_are_retried_by_class(client: Client, worker: CannedWorker) -> None:
    """Only those with one of the codes go back; those of other jobs never do."""
    job, other = a_job(client, "a", "b", "c"), a_job(client, "a", job_id="other")
    fail(worker, "delivery_limit", "generation_timeout", "non_finite_logits", "delivery_limit")

    assert RetryReport(put_back=2) == job.retry(codes=["delivery_limit", "generation_timeout"])
    assert RetryReport() == job.retry(codes=["delivery_limit"])

    worker.complete()
    assert {"a": "A", "b": "B", "c": "non_finite_logits"} == answers(job)
    assert {"a": "delivery_limit"} == answers(other)


def test_what_cannot_be_put_back_is_told_apart(
    client: Client, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """Refused, forgotten, and without room in the backlog: each has its own count."""
    job = client.submit([("empty", ""), ("a", "a"), ("b", "b"), ("c", "c")], prompt="Say")
    fail(worker, "delivery_limit", "delivery_limit", "non_finite_logits")
    redis_client.xtrim(keys.dead, maxlen=2, approximate=False)
    redis_client.hset(keys.backlog, "max_docs", 1)

    assert RetryReport(put_back=1, refused=1, gone=1, full=1) == job.retry()
    redis_client.hset(keys.backlog, "max_docs", 10)
    assert RetryReport(refused=1) == job.retry(codes=["empty_document"])
    assert RetryReport(put_back=1) == job.retry(codes=["non_finite_logits"])


def test_a_reader_that_saw_the_failure_gets_the_answer_later(
    client: Client, worker: CannedWorker
) -> None:
    """The new result comes after the failure, and who reads afterwards sees the answer alone."""
    job = a_job(client, "a", "b")
    fail(worker, "delivery_limit", "delivery_limit")
    seen = list(itertools.islice(job.results(timeout=5), 2))

    job.retry()
    worker.complete()

    later = list(job.results(timeout=5, after=seen[-1].cursor))
    assert ["A", "B"] == [result.text for result in later]
    assert later == list(job.results(timeout=5))


def test_a_cancelled_or_unknown_job_cannot_be_retried(client: Client, worker: CannedWorker) -> None:
    """Neither takes documents any more; both say what they are."""
    job = a_job(client, "a", "b")
    worker.prepare()
    [one, _] = worker.begin()
    worker.fail(*one)
    job.cancel()

    with pytest.raises(JobCancelled, match="another job"):
        job.retry()
    for steer in (Job(client._link, "never").pause, Job(client._link, "never").retry):
        with pytest.raises(JobNotFound):
            steer()


def test_a_shared_body_is_read_with_its_page(
    client: Client, redis_client: Any, keys: Keys, worker: CannedWorker
) -> None:
    """Results that share a body get it by one call a page; without it they fail alone."""
    job = a_job(client, "a", "b", "c")
    worker.step()
    key = keys.results(job.id)
    for (entry, fields), name in zip(redis_client.xrange(key), ("own", "fp", "lost"), strict=True):
        shares = {} if name == "own" else {b"b": b"", b"s": name}
        redis_client.xdel(key, entry)
        redis_client.xadd(key, fields | shares)
    redis_client.hset(keys.bodies(job.id), "fp", Body(text="shared").encode())

    assert {"a": "A", "b": "shared", "c": "result_expired"} == answers(job)


def test_asyncio_steers_a_job_as_well(redis_url: str, namespace: str, worker: CannedWorker) -> None:
    """Pause, resume, cancel by id and retry are there behind awaits."""

    async def main() -> None:
        async with AsyncClient(redis_url, namespace) as client:
            job = await client.submit([("a", "a"), ("b", "b")], prompt="Say")
            assert await job.pause()
            assert "paused" == (await job.status()).state
            assert await job.resume()
            assert 1 == await job.cancel(["a"])
            fail(worker, "delivery_limit")
            assert RetryReport() == await job.retry(codes=["empty_document"])
            assert RetryReport(put_back=1) == await job.retry()
            with answering(worker):
                assert ["B"] == [result.text async for result in job.results(timeout=5)]

    asyncio.run(main())
