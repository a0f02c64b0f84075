"""The README's own commands and program, against real processes with the fake engine."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
DOCMILL = [sys.executable, "-m", "docmill.cli"]

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a folder of papers in it."""
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "thames.txt").write_text("The river Thames flows through London.")
    (papers / "seine.md").write_text("# The Seine\n\nIt flows through Paris.")
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who tries things out: no model, a state folder of their own."""
    return dict(os.environ) | {  # noqa: TID251
        "DOCMILL_ENGINE": "fake",
        "DOCMILL_STATE_DIR": str(tmp_path / "state"),
    }


def block(language: str, containing: str) -> str:
    """Return the README's code block of this language that contains some text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.S)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def records(path: Path) -> dict[str, Any]:
    """Return a result file's records by custom id."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["custom_id"]: record for record in lines}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stdout + done.stderr


def test_a_folder_is_answered_by_the_first_command(
    folder: Path, environment: dict[str, str]
) -> None:
    """The README's first command turns a folder into a file of answers."""
    program, *arguments = shlex.split(block("sh", "docmill run"))

    assert program.endswith("/docmill")
    run([*DOCMILL, *arguments], folder, environment)
    assert 2 == len(records(folder / "answers.jsonl"))


def test_the_first_command_can_be_checked(folder: Path, environment: dict[str, str]) -> None:
    """The README's check of a folder finds nothing to complain about."""
    program, *arguments = shlex.split(block("sh", "docmill check"))

    assert program.endswith("/docmill")
    run([*DOCMILL, *arguments], folder, environment)


def test_the_json_lines_shown_are_accepted(folder: Path, environment: dict[str, str]) -> None:
    """Both kinds of line in the README are answered."""
    (folder / "in.jsonl").write_text(block("json", "note-1"))

    run([*DOCMILL, "run", "in.jsonl", "-o", "out.jsonl"], folder, environment)
    found = records(folder / "out.jsonl")
    assert {"note-1", "note-2"} == set(found)
    assert [None, None] == [record["error"] for record in found.values()]


@pytest.fixture
def service_url(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address that `docmill up` tells, once it is ready."""
    command = [*DOCMILL, "up", "--json"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as service:
        try:
            yield _announced(service)
        finally:
            service.send_signal(signal.SIGINT)
            assert 0 == service.wait(timeout=30)


def _announced(service: subprocess.Popen[str]) -> str:
    """Return the address that a service tells, once it is ready."""
    assert service.stdout is not None
    events = (json.loads(line) for line in service.stdout)
    url = next(event["url"] for event in events if event["event"] == "redis_ready")
    next(event for event in events if event["event"] == "ready")
    return str(url)


def test_the_client_program_writes_answers(
    folder: Path, environment: dict[str, str], service_url: str
) -> None:
    """The README's program, as it stands, answers the folder through a service."""
    (folder / "program.py").write_text(block("python", "from docmill import Client"))

    run([sys.executable, "program.py", service_url], folder, environment)
    found = records(folder / "answers.jsonl")
    assert 2 == len(found)
    assert [None, None] == [record["error"] for record in found.values()]
