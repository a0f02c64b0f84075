"""FLD-O07: ids, errors and answers that are markup, escape sequences or more than a line."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from docmill import Client
from docmill.keys import Keys
from tests.integration.docmill.conftest import Command
from tests.support.canned_worker import CannedWorker
from tests.support.cases import CASES, rows

MARKUP = "o07_dashboard_markup.jsonl"
#: What clears a terminal, colours what follows, ends a line for somebody, or reads backwards.
STEERING = "\x1b[2J\x1b[31m\x07\r\n\x7f\x9b1m\u2028\u202e"
#: What rich would take for a style.
STYLE = "[bold red]x[/bold red]"


@pytest.fixture
def job_id(
    client: Client, worker: CannedWorker, redis_client: Any, keys: Keys, docmill: Command
) -> str:
    """A job of the case's documents and two hostile ids; every second one failed."""
    submitted = docmill("submit", CASES / MARKUP, "--prompt", "Say", "--job-id", "markup")

    assert 0 == submitted.exit_code, submitted.output
    client.submit(
        [(f"{STYLE}{STEERING}{number}", f"{STEERING}{number}") for number in range(2)],
        prompt="Say",
        job_id="markup",
    )
    worker.prepare()
    for number, one in enumerate(worker.begin()):
        if number % 2:
            worker.answer(*one)
        else:
            worker.fail(*one, message=f"{STYLE}{STEERING}")
    shown = {"role": f"engine{STEERING}", "state": STEERING, "model": f"{STYLE}{STEERING}"}
    redis_client.hset(keys.consumers, "hostile", json.dumps(shown))
    redis_client.set(keys.heartbeat("hostile"), 1, ex=60)
    return "markup"


def custom_ids() -> list[str]:
    """Return the ids that the job has."""
    return [
        *(row["custom_id"] for row in rows(MARKUP)),
        *(f"{STYLE}{STEERING}{number}" for number in range(2)),
    ]


def is_harmless(text: str) -> bool:
    """Return whether every line holds nothing but what a terminal prints."""
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    "command",
    [["status"], ["status", "markup"], ["dead", "list"], ["results", "markup", "-o", "OUT"]],
)
def test_what_people_read_steers_no_terminal(
    docmill: Command, job_id: str, tmp_path: Path, command: list[str]
) -> None:
    """FLD-O07: every line is printable text."""
    told = [str(tmp_path / "out.jsonl") if word == "OUT" else word for word in command]
    finished = docmill(*told)

    assert is_harmless(finished.stdout), ascii(finished.stdout)
    assert is_harmless(finished.stderr), ascii(finished.stderr)
    assert finished.stdout + finished.stderr


def test_ids_and_errors_are_shown_as_text(docmill: Command, job_id: str) -> None:
    """FLD-O07: markup is neither obeyed nor left out, and each letter is one line."""
    status, listed = docmill("status").stdout, docmill("dead", "list").stdout
    letters = [json.loads(line) for line in docmill("dead", "list", "--json").stdout.splitlines()]

    assert STYLE in status
    assert STYLE in listed
    assert "<img src=x onerror=wind" in listed  # cut to the column
    assert 1 + 6 == len(listed.splitlines())
    assert custom_ids()[::2] == [letter["custom_id"] for letter in letters]
    for letter in letters:
        shown = docmill("dead", "show", letter["id"]).stdout

        assert is_harmless(shown), ascii(shown)
        assert STYLE in shown


def test_json_is_whole_and_harmless(docmill: Command, job_id: str) -> None:
    """FLD-O07: one record per line, ids and messages as they were, control characters escaped."""
    results = docmill("results", job_id)
    records = [json.loads(line) for line in results.stdout.split("\n")[:-1]]
    status = docmill("status", "--json").stdout

    assert sorted(custom_ids()) == sorted(record["custom_id"] for record in records)
    assert {f"{STYLE}{STEERING}"} == {
        record["error"]["message"] for record in records if record["error"]
    }
    assert f"{STYLE}{STEERING}" in [worker["model"] for worker in json.loads(status)["workers"]]
    for text in (results.stdout, results.stderr, status, docmill("dead", "list", "--json").stdout):
        kinds = {unicodedata.category(letter) for letter in text.replace("\n", "")}

        assert not kinds & {"Cc", "Zl", "Zp"}  # controls, and what else ends lines


def test_a_refusal_that_names_an_id_steers_no_terminal(docmill: Command, job_id: str) -> None:
    """FLD-O07: what a command complains about may be anything that somebody typed or piped in."""
    for command in (["status", STEERING], ["dead", "show", STEERING], ["cancel", STEERING]):
        finished = docmill(*command)

        assert 2 == finished.exit_code
        assert is_harmless(finished.stderr), ascii(finished.stderr)
