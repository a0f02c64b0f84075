"""`docmill submit` and `results` on a real Redis: what they tell a person."""

import json
import signal
from collections.abc import Iterator
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


def test_a_sample_is_submitted_before_the_rest(docmill: Command, tmp_path: Path) -> None:
    """The first documents alone, then the others; files of other kinds are counted."""
    for name in ("a.txt", "b.txt", "c.txt", "d.png"):
        (tmp_path / name).write_text("text")
    command = ("submit", tmp_path, "-p", "Say", "--job-id", "known", "--json")
    sample = json.loads(docmill(*command, "--limit", "2").stdout)
    rest = json.loads(docmill(*command).stdout)

    assert [2, 3] == [told["submitted"] for told in (sample, rest)]
    assert {".png": 1} == rest["skipped_files"]


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
            "hlen",
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


def test_a_repeated_submission_says_what_was_new(docmill: Command, tmp_path: Path) -> None:
    """The second time nothing is, and the line says so before the job's counts."""
    path = _texts(tmp_path, 3)
    first, again = (docmill("submit", path, "-p", "Say", "--job-id", "same") for _ in range(2))

    assert "already there" not in first.stderr
    assert "0 new, 3 already there; same  running: 3 documents" in again.stderr


def test_failures_are_told_with_the_first_of_each(
    docmill: Command, client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """After results were read, or waited for; status says where to look."""
    documents = [{"id": "a", "text": ""}, {"id": "b", "text": ""}, {"id": "c", "text": "c"}]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in documents))
    job = client.submit(path, prompt="Say", job_id="some")
    worker.prepare()
    worker.fail(*worker.begin()[0])
    lines = ["2 x empty_document, first: a: the document", "1 x non_finite_logits, first: c: it"]

    told = [
        docmill("results", job.id),
        docmill("results", job.id, "-o", tmp_path / "out.jsonl"),
        docmill("submit", path, "-p", "Say", "--job-id", job.id, "--wait"),
    ]

    assert [1, 1, 1] == [run.exit_code for run in told]
    assert [] == [(line, run.stderr) for line in lines for run in told if line not in run.stderr]
    shown = docmill("status", job.id).stderr
    assert "'docmill results some' tells why 3 documents failed" in shown
    assert "'docmill dead list --job some'" in shown


def test_a_job_is_shown_with_name_age_and_terms(
    docmill: Command, redis_client: Any, keys: Keys, tmp_path: Path
) -> None:
    """What submit was given stands in the status, for people and programs; so does the backlog."""
    asked = ("--name", "Nightly", "--result-ttl", "2h", "--deadline", "1d", "--job-id", "named")
    assert 0 == docmill("submit", _texts(tmp_path, 2), "-p", "Say", *asked).exit_code

    one, service = docmill("status", "named"), docmill("status")
    [told] = json.loads(docmill("status", "--json").stdout)["jobs"]

    assert one.stdout.startswith("named  running: 2 documents (2 waiting), 'Nightly', opened 0 s")
    assert "backlog     2 documents, 12 bytes" in service.stdout
    assert one.stdout in service.stdout
    assert ("Nightly", False) == (told["name"], "shard" in told)
    redis_client.set(keys.shards, 2)
    assert "opened 0 s ago, shard 0" in docmill("status", "named").stdout
    assert b"7200" == redis_client.hget(keys.job("named"), "result_ttl_s")


def test_a_job_whose_producer_is_gone_is_told(
    docmill: Command, client: Client, redis_client: Any, keys: Keys
) -> None:
    """An unsealed job says for how long nothing was heard, and what to do; in JSON as a moment."""

    def documents() -> Iterator[str]:
        yield "first"
        raise OSError("the source broke")

    with pytest.raises(OSError, match="broke"):
        client.submit(documents(), prompt="Say", job_id="half")
    redis_client.zincrby(keys.open_jobs, -7200, "half")

    told = docmill("status", "half")

    assert "its producer was last heard of 2 h 00 min ago" in told.stderr
    assert "--job-id half to go on, or 'docmill cancel half'" in told.stderr
    assert told.stderr in docmill("status").stderr
    assert json.loads(docmill("status", "half", "--json").stdout)["producer_seen_at"] > 0


def test_a_paused_job_is_not_called_running(docmill: Command, client: Client) -> None:
    """What there is so far is told with the state that the job is in."""
    job = client.submit(["text"], prompt="Say", job_id="rest")
    job.pause()

    told = docmill("results", "rest", "--no-wait").stderr

    assert told.startswith("rest is paused; this is what there is so far")


def test_an_expired_job_says_what_to_do(
    docmill: Command, client: Client, redis_client: Any, keys: Keys
) -> None:
    """One line with the moment of its opening."""
    client.submit(["text"], prompt="Say", job_id="old")
    redis_client.delete(keys.job("old"))

    told = docmill("results", "old")

    assert 2 == told.exit_code
    assert "job 'old', opened 2" in told.stderr
    assert "submit its documents again" in told.stderr


def test_status_tells_what_sharing_saved(docmill: Command, redis_client: Any, keys: Keys) -> None:
    """How many documents were repeats, and where their answers came from; nonsense counts zero."""
    figures = {"lookups": 1200, "cached": 40, "followed": 9, "promoted": 2, "tokens_saved": 5000}
    redis_client.hset(keys.sharing, mapping=figures | {"evicted": "nonsense", "answer_bytes": 7})

    line = next(row for row in docmill("status").stdout.split("\n") if row.startswith("repeats"))
    told = json.loads(docmill("status", "--json").stdout)["sharing"]

    assert "47 documents of 1,200 answered as repeats" in line
    assert "5,000 prompt tokens saved" in line
    assert figures | {"process": 0, "evicted": 0, "answer_bytes": 7} == told
