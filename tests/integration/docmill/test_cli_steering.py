"""The command line on a real Redis: dead letters, and what steers a job."""

import json
from pathlib import Path
from typing import Any

import pytest

from docmill import Client, Job
from docmill.dead import DeadLetters
from docmill.keys import Keys
from tests.integration.docmill.conftest import Command
from tests.support.canned_worker import CannedWorker


@pytest.fixture
def job(client: Client, worker: CannedWorker) -> Job:
    """A job with an answer, a refusal, and two documents that were given up."""
    documents = [("good", "good"), ("empty", ""), ("x/a\x1b[2J", "text a"), ("b", "text b" * 50)]
    job = client.submit(documents, prompt="Say", job_id="papers")
    worker.prepare()
    good, *dead = worker.begin()
    worker.answer(*good)
    for one, code in zip(dead, ("delivery_limit", "non_finite_logits"), strict=True):
        worker.fail(*one, code=code)
    return job


@pytest.fixture
def ids(client: Client, job: Job) -> list[str]:
    """The ids of that job's dead letters, in order."""
    return [letter.id for letter in DeadLetters(client._link).list(job=job.id)]


def test_letters_are_listed_as_a_table(docmill: Command, ids: list[str]) -> None:
    """A line for each, fit for a terminal, and their number by code."""
    finished = docmill("dead", "list")

    assert 0 == finished.exit_code
    [head, first, second] = finished.stdout.splitlines()
    assert ["ID", "AGE", "CODE", "JOB", "CUSTOM", "ID", "TRIES", "MESSAGE"] == head.split()
    assert first.startswith(ids[0])
    assert [] == [
        word
        for word in ("delivery_limit", "papers", "x/a·[2J", "it cannot be answered")
        if word not in first
    ]
    assert ids[1] in second
    assert "\x1b" not in finished.output
    assert "2 dead letters: 1 x delivery_limit, 1 x non_finite_logits\n" == finished.stderr


def test_letters_are_listed_for_programs(docmill: Command, ids: list[str]) -> None:
    """One JSON object a line, with all but the payload; filters apply."""
    finished = docmill("dead", "list", "--json", "--code", "delivery_limit", "--newer-than", "1h")

    [letter] = [json.loads(line) for line in finished.stdout.splitlines()]
    assert (ids[0], "x/a\x1b[2J", 1, 6) == tuple(
        letter[name] for name in ("id", "custom_id", "deliveries", "size")
    )
    assert "" == finished.stderr


def test_no_letters_are_told(docmill: Command) -> None:
    """An empty list is no error, and says so."""
    finished = docmill("dead", "list")

    assert (0, "", "0 dead letters\n") == (finished.exit_code, finished.stdout, finished.stderr)


def test_one_letter_is_shown_whole(docmill: Command, ids: list[str]) -> None:
    """Whose it is, what went wrong and who had it; the payload's size but not its text."""
    shown = docmill("dead", "show", ids[0]).stdout

    lines = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert ("delivery_limit", "papers", "1", "0123456789ab") == tuple(
        lines[name] for name in ("code", "job", "deliveries", "traceback")
    )
    assert "canned-1" in lines["last"]
    assert lines["payload"].startswith("6 bytes, prepared: a prompt of 0 tokens; its text is not")
    assert "text a" not in shown


def test_a_prepared_letter_says_where_its_text_is(
    docmill: Command, client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """The file and line that the document came from."""
    path = tmp_path / "in.jsonl"
    path.write_text('\n{"id": "a", "text": "x"}\n')
    client.submit(path, prompt="Say")
    worker.prepare()
    worker.fail(*worker.begin()[0])
    [letter] = client.dead_letters().list()

    assert f"its text came from {path}, line 2\n" in docmill("dead", "show", letter.id).stdout


def test_a_payload_is_written_as_it_was(docmill: Command, ids: list[str], tmp_path: Path) -> None:
    """Into a file beside the description, or alone to standard output, byte for byte."""
    path = tmp_path / "payload"

    written = docmill("dead", "show", ids[0], "--payload", path)
    assert 0 == written.exit_code
    assert f"6 bytes written to {path}: the prepared record\n" == written.stderr
    assert b"text a" == path.read_bytes()
    assert b"text b" * 50 == docmill("dead", "show", ids[1], "--payload", "-").stdout_bytes
    unwritable = docmill("dead", "show", ids[0], "--payload", tmp_path / "no" / "folder")
    assert 2 == unwritable.exit_code
    assert "no/folder cannot be written" in unwritable.stderr


def test_an_unknown_letter_is_named(docmill: Command) -> None:
    """One line, and the status of wrong usage."""
    finished = docmill("dead", "show", "1-1")

    assert 2 == finished.exit_code
    assert "'1-1'" in finished.stderr
    assert 1 == finished.stderr.count("\n")


def test_letters_are_retried_by_id_and_by_filter(
    docmill: Command, ids: list[str], job: Job, worker: CannedWorker
) -> None:
    """How many of each reply is printed; not all put back is status 1."""
    first = docmill("dead", "retry", ids[0], "1-1")
    second = docmill("dead", "retry", "--job", job.id, "--json")

    assert (1, "1 put back, 1 not there any more\n") == (first.exit_code, first.stdout)
    assert "'docmill dead list' shows what there is\n" == first.stderr
    assert 0 == second.exit_code
    assert 1 == json.loads(second.stdout)["ok"]
    assert "no dead letter matches" in docmill("dead", "retry", "--all").stdout
    worker.complete()
    assert 3 == job.status().succeeded


def test_dropping_more_than_one_names_asks_for_yes(
    docmill: Command, ids: list[str], job: Job, redis_client: Any, keys: Keys
) -> None:
    """Without it nothing is lost; with it the letters go and the results stay."""
    unsure = docmill("dead", "drop", "--older-than", "0s")

    assert 2 == unsure.exit_code
    assert "2 dead letters" in unsure.stderr
    assert "--yes" in unsure.stderr
    assert 2 == redis_client.xlen(keys.dead)
    assert "1 dead letter dropped, 1 not there" in docmill("dead", "drop", ids[0], "1-1").stdout
    assert {"dropped": 1, "gone": 0} == json.loads(
        docmill("dead", "drop", "--all", "--yes", "--json").stdout
    )
    assert 3 == job.status().failed


def test_a_job_is_paused_and_resumed(docmill: Command, client: Client) -> None:
    """Each prints where the job stands; doing it twice says that there was nothing to do."""
    job = client.submit(["text"], prompt="Say", job_id="rest")

    assert docmill("pause", job.id).stdout.startswith("rest  paused: 1 document")
    assert docmill("pause", job.id).stdout.startswith("nothing to do; rest  paused")
    shown = json.loads(docmill("status", job.id, "--json").stdout)
    assert "paused" == shown["state"]
    assert shown["paused_at"] > 0
    assert docmill("resume", job.id).stdout.startswith("rest  running")
    assert not json.loads(docmill("resume", job.id, "--json").stdout)["changed"]
    assert 2 == docmill("pause", "never").exit_code


def test_single_documents_are_cancelled(docmill: Command, client: Client) -> None:
    """With ids only these are taken back, without them the job."""
    job = client.submit([("a", "x"), ("b", "y"), ("c", "z")], prompt="Say", job_id="some")

    finished = docmill("cancel", job.id, "--id", "a", "--id", "c", "--id", "d")

    assert 1 == finished.exit_code
    assert finished.stdout.startswith("2 documents were asked to be cancelled; those that are done")
    assert "no such document in this job: d\n" == finished.stderr
    again = docmill("cancel", job.id, "--id", "a")
    assert (0, "nothing new was asked to be cancelled") == (
        again.exit_code,
        again.stdout.partition(";")[0],
    )
    assert docmill("cancel", job.id).stdout.startswith("3 waiting documents cancelled")
    ended = docmill("cancel", job.id, "--id", "a")
    assert ended.stdout.startswith("the job has ended; nothing was cancelled; some  cancelled")


def test_a_job_s_failures_are_retried(docmill: Command, job: Job, worker: CannedWorker) -> None:
    """By code or all of them; what cannot be put back is told, and is status 1."""
    by_code = docmill("retry", job.id, "--code", "delivery_limit")
    rest = docmill("retry", job.id)

    assert (0, "") == (by_code.exit_code, by_code.stderr)
    assert by_code.stdout.startswith("1 document put back; papers  running")
    assert 1 == rest.exit_code
    assert "1 document refused: nothing of them is kept" in rest.stderr
    worker.complete()
    assert (3, 1) == (job.status().succeeded, job.status().failed)
    assert 1 == json.loads(docmill("retry", job.id, "--json").stdout)["refused"]


def test_a_code_that_no_failure_has_is_told(docmill: Command, job: Job) -> None:
    """Nothing is put back, the codes that there are stand in one line, and the status is 1."""
    finished = docmill("retry", job.id, "--code", "nosuch")

    assert 1 == finished.exit_code
    assert finished.stdout.startswith("0 documents put back")
    codes = "empty_document, delivery_limit, non_finite_logits"
    assert f"no failure of the job has such a code; there are: {codes}\n" == finished.stderr
