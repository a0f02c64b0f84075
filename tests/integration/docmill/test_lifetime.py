"""FLD-L12: how long a job's data live: for as long as it takes, and then for their time."""

import threading
from typing import Any

import pytest

from docmill import Client, Job, JobStatus
from docmill.errors import ResultExpired
from docmill.keys import GROUP, Keys
from docmill.scripts import Scripts
from tests.support.canned_worker import CONSUMER, CannedWorker
from tests.support.wait import wait_until


def mortal(redis_client: Any, keys: Keys) -> set[str]:
    """Return the keys of the test's namespace that will expire, without their prefix."""
    found = redis_client.keys(f"{keys.prefix}:*")
    return {
        key.decode().removeprefix(f"{keys.prefix}:") for key in found if redis_client.ttl(key) >= 0
    }


@pytest.fixture
def job(client: Client) -> Job:
    """A job whose results are kept for an hour."""
    return client.submit([("a", "one"), ("b", "two")], prompt="Say", job_id="j", result_ttl=3600)


def test_what_waits_or_runs_never_expires(
    job: Job, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """The lifetime starts when the job ends: until then no key of it has one."""
    assert set() == mortal(redis_client, keys)
    worker.prepare()
    first, second = worker.begin()
    worker.answer(*first)
    assert set() == mortal(redis_client, keys)
    worker.answer(*second)

    assert {"job:j", "job:j:ids", "job:j:specs", "job:j:results"} == mortal(redis_client, keys)
    assert 3590 < redis_client.ttl(keys.job("j")) <= 3600


def test_what_waits_for_a_retry_never_expires(
    job: Job, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """An entry that is put off for longer than results are kept is there when its time comes."""
    worker.prepare()
    (stream, entry, _), second = worker.begin()
    worker.answer(*second)
    owned = (stream, GROUP, CONSUMER, entry, 1, 3, 10_000.0)

    said = Scripts(redis_client, keys.prefix).call("redeliver", *owned, "c", b"", "m", "", "", "")

    assert b"LATER" == said
    assert set() == mortal(redis_client, keys)
    assert ("running", 1) == (job.status().state, job.status().waiting)


def test_a_retried_job_lives_again(
    job: Job, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """Putting a failure back stops the clock, and the job's next end starts it anew."""
    worker.prepare()
    for one in worker.begin():
        worker.fail(*one)
    assert "job:j" in mortal(redis_client, keys)

    job.retry()

    assert set() == mortal(redis_client, keys)
    worker.complete()
    assert {"job:j", "job:j:results", "job:j:history"} <= mortal(redis_client, keys)


def test_who_waits_sees_the_end_before_it_expires(
    client: Client, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """A short lifetime does not keep a client in wait(); asked later, the job has expired."""
    job = client.submit(["one"], prompt="Say", result_ttl=1)
    ends: list[JobStatus] = []
    waiter = threading.Thread(target=lambda: ends.append(job.wait(progress=False, timeout=20)))
    waiter.start()
    worker.step()
    waiter.join(20)

    assert ["finished"] == [status.state for status in ends]
    wait_until(lambda: not redis_client.exists(keys.job(job.id)), what="the job expired")
    with pytest.raises(ResultExpired):
        client.job(job.id)
