"""`docmill submit` and `results` on a real Redis: what they tell a person."""

import json
from pathlib import Path
from typing import Any

from docmill import Client
from docmill.keys import Keys
from tests.integration.docmill.conftest import Command
from tests.support.canned_worker import CannedWorker

NO_WORKER = "no worker is running; the job waits until one is started"


def test_a_job_without_workers_is_told_to_wait(
    docmill: Command, tmp_path: Path, redis_client: Any, keys: Keys
) -> None:
    """One line warns when nobody is there to work, and none once somebody is."""
    path = tmp_path / "a.txt"
    path.write_text("text")
    lonely = docmill("submit", path, "-p", "Say", "--job-id", "lonely")
    redis_client.hset(keys.consumers, "worker-1", json.dumps({"role": "engine"}))
    dead = docmill("submit", path, "-p", "Say", "--job-id", "dead")
    redis_client.set(keys.heartbeat("worker-1"), "", ex=60)
    served = docmill("submit", path, "-p", "Say", "--job-id", "served")

    assert (0, "lonely\n") == (lonely.exit_code, lonely.stdout)
    assert [1, 1, 0] == [run.stderr.count(NO_WORKER) for run in (lonely, dead, served)]


def test_another_prompt_for_a_known_job_is_refused(docmill: Command, tmp_path: Path) -> None:
    """One line names both prompts and what to do; the same prompt again is fine."""
    path = tmp_path / "a.txt"
    path.write_text("text")
    assert 0 == docmill("submit", path, "-p", "First", "--job-id", "known").exit_code

    other = docmill("submit", path, "-p", "Second", "--job-id", "known")

    assert 2 == other.exit_code
    assert "'First {document}' then, 'Second {document}' now" in other.stderr
    assert "choose another job id" in other.stderr
    assert 0 == docmill("submit", path, "-p", "First", "--job-id", "known").exit_code


def test_answers_to_another_prompt_are_told(
    docmill: Command, client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """A file that holds them keeps them, and says so once; answers to the same stay silent."""
    documents = [("a", "one"), ("b", "two")]
    jobs = [
        client.submit(documents, prompt=prompt, job_id=f"{prompt}{number}")
        for number, prompt in enumerate(("First", "First", "Second"))
    ]
    worker.step()
    path = tmp_path / "out.jsonl"

    told = [docmill("results", job.id, "-o", path) for job in jobs]

    assert [0, 0, 0] == [run.exit_code for run in told]
    assert [0, 0, 1] == [run.stderr.count("answers to another prompt") for run in told]
    assert "(first: a)" in told[2].stderr
    assert 2 == len(path.read_text().splitlines())


def test_results_after_a_retry_replace_the_failures(
    docmill: Command, client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """A file with failures has the answers alone once they are there."""
    job = client.submit([("a", "one"), ("b", "two")], prompt="Say")
    worker.prepare()
    first, second = worker.begin()
    worker.answer(*first)
    worker.fail(*second)
    path = tmp_path / "out.jsonl"
    assert 1 == docmill("results", job.id, "-o", path).exit_code

    docmill("retry", job.id)
    worker.complete()
    finished = docmill("results", job.id, "-o", path)

    assert 0 == finished.exit_code
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [("a", None), ("b", None)] == [(one["custom_id"], one["error"]) for one in records]
