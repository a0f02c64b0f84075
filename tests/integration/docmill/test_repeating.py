"""Submitting again, after whatever went wrong: every document is taken once."""

from collections import Counter
from pathlib import Path
from typing import Any

from docmill import Client
from docmill.keys import Keys
from tests.support.canned_worker import CannedWorker
from tests.support.command import docmill, running
from tests.support.proxy import running_proxy
from tests.support.wait import wait_until


def a_file(folder: Path, count: int) -> Path:
    """Write a file of documents that hold their own ids."""
    path = folder / "in.jsonl"
    lines = (f'{{"id": "d{number}", "text": "d{number}"}}\n' for number in range(count))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_lost_reply_and_a_second_process_double_nothing(
    redis_url: str,
    namespace: str,
    redis_client: Any,
    keys: Keys,
    worker: CannedWorker,
    tmp_path: Path,
) -> None:
    """FLD-C03: applied but not answered, then sent again by another process: one result each."""
    path = a_file(tmp_path, 20)
    arguments = ("submit", path, "-p", "Say", "--job-id", "once", "--namespace", namespace)
    with running_proxy(redis_url) as proxy:
        proxy.lose_replies(1, to=b"\r\nd0\r\n")  # the namespace may hold a d0
        first = docmill(*arguments, "--redis-url", proxy.url)
        assert 0 == proxy.replies_to_lose
    second = docmill(*arguments, "--redis-url", redis_url)

    assert [(0, "once\n"), (0, "once\n")] == [(run.status, run.stdout) for run in (first, second)]
    assert 20 == redis_client.xlen(keys.intake("batch"))
    worker.step()
    with Client(redis_url, namespace) as client:
        results = list(client.job("once").results(timeout=5))
    assert {f"d{number}": 1 for number in range(20)} == Counter(r.custom_id for r in results)


def test_a_client_that_was_killed_is_run_again(
    redis_url: str,
    namespace: str,
    redis_client: Any,
    keys: Keys,
    worker: CannedWorker,
    tmp_path: Path,
) -> None:
    """Killed three times in mid submission and repeated each time, every document is there once."""
    path = a_file(tmp_path, 600)
    arguments = ("submit", path, "-p", "Say", "--job-id", "killed")
    here = ("--namespace", namespace, "--redis-url", redis_url)

    def num_taken() -> int:
        length: int = redis_client.xlen(keys.intake("batch"))
        return length

    for limit in (150, 300, 450):
        redis_client.hset(keys.backlog, "max_docs", limit)
        with running(tmp_path, *arguments, *here) as command:
            # then it waits for room, in the middle of a chunk
            wait_until(lambda: num_taken() == limit)  # noqa: B023 - called here
            command.process.kill()
            command.process.wait()
    redis_client.hset(keys.backlog, "max_docs", 10_000)

    finished = docmill(*arguments, *here)

    assert (0, "killed\n") == (finished.status, finished.stdout)
    worker.step(1000)
    with Client(redis_url, namespace) as client:
        job = client.job("killed")
        results = list(job.results(timeout=5))
        assert ("finished", 600) == (job.status().state, job.status().submitted)
    assert {f"d{number}": 1 for number in range(600)} == Counter(r.custom_id for r in results)
