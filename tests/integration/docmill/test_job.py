"""Following a job on a real Redis: counts, results, waiting, an end to it."""

import itertools
import threading
from typing import Any

import pytest

from docmill import Client, JobStatus
from docmill.errors import JobNotFound, ResultExpired, ResultTimeout
from docmill.keys import Keys
from tests.support.canned_worker import CannedWorker, answering
from tests.support.wait import wait_until


def adds_up(status: JobStatus) -> bool:
    """Check the promise that every count is part of."""
    parts = (
        status.succeeded,
        status.failed,
        status.cancelled,
        status.expired,
        status.waiting,
        status.running,
    )
    return status.submitted == sum(parts) and min(parts) >= 0


def test_counts_add_up_at_every_step(client: Client, worker: CannedWorker) -> None:
    """Submitted, prepared, running, half answered, cancelled, ended: the sum always holds."""
    job = client.submit([*map(str, range(9)), ("empty", "")], prompt="Answer")
    states = [job.status()]
    worker.prepare()
    states.append(job.status())
    running = worker.begin(4)
    states.append(job.status())
    for one in running[:2]:
        worker.answer(*one)
    states.append(job.status())
    assert 5 == job.cancel()
    states.append(job.status())
    for one in running[2:]:
        worker.answer(*one)
    states.append(job.status())

    assert all(adds_up(status) for status in states)
    assert [(10, 0), (9, 0), (5, 4), (5, 2), (0, 2), (0, 0)] == [
        (status.waiting, status.running) for status in states
    ]
    assert ["running"] * 5 + ["cancelled"] == [status.state for status in states]
    assert (4, 1, 5) == (states[-1].succeeded, states[-1].failed, states[-1].cancelled)
    assert 5 == len(list(job.results(timeout=5)))
    assert 0 == job.cancel()


def test_results_come_as_they_are_ready_and_end_with_the_job(
    client: Client, worker: CannedWorker
) -> None:
    """The first result is there before the last document has been answered."""
    job = client.submit(["first", "second"], prompt="Answer")
    worker.step(1)
    results = job.results(timeout=5)

    assert "FIRST" == next(results).text
    assert 1 == job.status().waiting
    worker.step(1)
    assert ["SECOND"] == [result.text for result in results]


def test_results_go_on_after_a_cursor(client: Client, worker: CannedWorker) -> None:
    """A reader that stopped goes on behind the last result it saw, in another process as well."""
    job = client.submit(map(str, range(300)), prompt="Answer")
    worker.step(300)
    seen = list(itertools.islice(job.results(timeout=5), 280))

    rest = list(client.job(job.id).results(timeout=5, after=seen[-1].cursor))

    assert [str(number) for number in range(300)] == [r.text for r in seen + rest]


def test_results_of_a_job_that_is_still_open_wait_for_more(
    client: Client, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """While documents may still be added, having answered all so far is not the end."""
    job = client.submit(["one"], prompt="Answer", job_id="open")
    worker.step()
    redis_client.hset(keys.job("open"), "sealed", 0)

    with pytest.raises(ResultTimeout, match="open"):
        list(job.results(timeout=0.05))
    assert "open" == job.status().state


def test_a_result_carries_what_the_worker_told(client: Client, worker: CannedWorker) -> None:
    """Text, usage, model, source and moments arrive as they were written."""
    job = client.submit([{"id": "a", "text": "hello"}], prompt="Answer")
    worker.step()
    [result] = job.results(timeout=5)

    assert ("a", "HELLO", "stop", "canned", "run") == (
        result.custom_id,
        result.text,
        result.finish_reason,
        result.model,
        result.shared,
    )
    assert (7, 5) == (result.usage.prompt_tokens, result.usage.completion_tokens)
    assert result.finished_at == pytest.approx(job.status().created_at, abs=10)


def test_wait_returns_the_final_counts(
    client: Client, worker: CannedWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waiting ends with the job, and says on standard error how far it was."""
    job = client.submit(["one", ("empty", "")], prompt="Answer")
    with answering(worker):
        status = job.wait(timeout=10)

    assert ("finished", 1, 1) == (status.state, status.succeeded, status.failed)
    shown = capsys.readouterr()
    assert "2/2 documents, 1 failed" in shown.err
    assert "\x1b" not in shown.err
    assert "" == shown.out


def test_wait_gives_up_in_time(client: Client) -> None:
    """A job that nobody works on is not waited for longer than asked."""
    job = client.submit(["one"], prompt="Answer")

    with pytest.raises(ResultTimeout, match="0 of 1"):
        job.wait(progress=False, timeout=0.01)


def test_expired_is_told_apart_from_unknown(
    client: Client, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """A job whose results were kept for their time says so, to status, results, wait and cancel."""
    job = client.submit(["one"], prompt="Answer", result_ttl=1)
    worker.step()
    wait_until(lambda: not redis_client.exists(keys.job(job.id)), what="the job expired")

    for ask in (job.status, lambda: list(job.results()), job.wait, job.cancel):
        with pytest.raises(ResultExpired, match="kept"):
            ask()


def test_a_reader_learns_that_redis_lost_the_job(
    client: Client, redis_client: Any, keys: Keys
) -> None:
    """A reader that waits for results ends with an error when the job's data are gone."""
    job = client.submit(["one"], prompt="Answer")
    caught: list[BaseException] = []

    def follow() -> None:
        try:
            list(job.results())
        except JobNotFound as error:
            caught.append(error)

    reader = threading.Thread(target=follow)
    reader.start()
    redis_client.delete(*redis_client.keys(f"{keys.prefix}*"))
    reader.join(timeout=10)

    assert [JobNotFound] == [type(error) for error in caught]
