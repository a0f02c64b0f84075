"""`docmill submit` and `results` on a real Redis: what they tell a person."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from docmill import Client
from docmill.keys import Keys
from tests.integration.docmill.conftest import Command
from tests.support.canned_worker import CannedWorker
from tests.support.command import running
from tests.support.wait import wait_until

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


def _texts(folder: Path, count: int) -> Path:
    path = folder / "many.jsonl"
    path.write_text("".join(f'{{"id": "{n}", "text": "text {n}"}}\n' for n in range(count)))
    return path


def test_an_interrupted_submission_says_how_to_go_on(
    redis_url: str, namespace: str, redis_client: Any, keys: Keys, tmp_path: Path
) -> None:
    """The made-up id is told when the job is opened, and with what was sent on Ctrl-C."""
    redis_client.hset(keys.backlog, "max_docs", 70)
    here = ("--redis-url", redis_url, "--namespace", namespace, "--state-dir", tmp_path)
    with running(tmp_path, "submit", _texts(tmp_path, 1000), "-p", "Say", *here) as command:
        wait_until(lambda: redis_client.xlen(keys.intake("batch")) == 70)
        command.process.send_signal(signal.SIGINT)
        ended = command.wait()

    [job_id] = [name.decode() for name in redis_client.zrange(keys.jobs, 0, -1)]
    assert (130, "") == (ended.status, ended.stdout)
    assert f"job {job_id} opened" in ended.stderr
    assert ended.stderr.endswith(
        f"interrupted: 64 documents sent; repeat with --job-id {job_id} to go on\n"
    )


@pytest.mark.parametrize(
    ("arguments", "last_call", "words"),
    [
        (("results", "left"), "xread", "'docmill results left' comes back to it"),
        (
            ("results", "left", "-o", "OUT"),
            "xread",
            "'docmill results left -o OUT' comes back to it",
        ),
        (
            ("submit", "many.jsonl", "-p", "Say", "--job-id", "left", "--wait"),
            "hmget",
            "'docmill results left' comes back to it",
        ),
    ],
    ids=["results", "file", "wait"],
)
def test_who_waits_is_told_how_to_come_back(
    client: Client,
    redis_client: Any,
    redis_url: str,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    last_call: str,
    words: str,
) -> None:
    """Ctrl-C ends the waiting, not the job, and one line says so."""
    monkeypatch.chdir(tmp_path)
    client.submit(_texts(tmp_path, 2), prompt="Say", job_id="left")
    here = ("--redis-url", redis_url, "--namespace", namespace, "--state-dir", tmp_path)
    with running(tmp_path, *arguments, *here) as command:
        wait_until(lambda: last_call in {one["cmd"] for one in redis_client.client_list()})
        command.process.send_signal(signal.SIGINT)
        ended = command.wait()

    assert 130 == ended.status
    assert "interrupted; the job goes on" in ended.stderr
    assert words in ended.stderr
