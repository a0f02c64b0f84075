"""`docmill check` as a user runs it: a process of the service's, and no model."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import Running, descendants, docmill, is_running
from tests.support.wait import wait_until


def test_each_document_has_a_line(tmp_path: Path) -> None:
    """What would happen is told on standard output, the sum of it on standard error."""
    (tmp_path / "in.jsonl").write_text(
        '{"id": "first", "text": "A text."}\n'
        '{"id": "again", "text": "A text."}\n'
        "not JSON\n"
        '{"id": "long", "text": "%s"}\n' % ("word " * 50_000),
        encoding="utf-8",
    )
    command = ("check", tmp_path / "in.jsonl", "--engine", "fake", "-p", "Sum up.")
    told = docmill(*command)
    refused = docmill(*command, "--truncate", "refuse", "--json")

    assert (1, 1) == (told.status, refused.status)
    lines = told.stdout.splitlines()
    assert ["document", "first", "again", f"{tmp_path}/in.jsonl:3", "long"] == [
        line.split()[0] for line in lines
    ]
    assert "duplicate of first" in lines[2]
    assert "truncated; semantic keeps" in lines[4]
    assert "1 ready, 1 truncated, 1 duplicate, 1 refused" in told.stderr
    *records, last = [json.loads(line) for line in refused.stdout.splitlines()]
    assert ["ready", "duplicate", "refused", "refused"] == [one["verdict"] for one in records]
    assert "too_long" == records[3]["error"]["code"]
    assert {"bad_line": 1, "too_long": 1} == last["summary"]["errors"]


def test_documents_are_checked_without_a_prompt(tmp_path: Path) -> None:
    """To look through a pile nothing has to be asked; relative paths are those of the caller."""
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    told = docmill("check", tmp_path / "a.txt", "--engine", "fake")

    assert 0 == told.status
    assert told.stdout.splitlines()[1].endswith("ready")


def test_a_sample_can_be_checked(tmp_path: Path) -> None:
    """The first rows alone, by the separator that is said; files of other kinds are counted."""
    (tmp_path / "a.csv").write_text("id|text\n1|one\n2|two\n3|three\n", encoding="utf-8")
    (tmp_path / "b.png").write_bytes(b"picture")
    command = ("check", tmp_path, "--engine", "fake", "--separator", "|", "--json")
    sample, whole = docmill(*command, "--limit", "2"), docmill(*command)

    assert (0, 0) == (sample.status, whole.status)
    ids = [json.loads(line).get("custom_id") for line in sample.stdout.splitlines()]
    assert ["1", "2", None] == ids
    assert {".png": 1} == json.loads(whole.stdout.splitlines()[-1])["summary"]["skipped_files"]
    assert "skipped 1 file of other kinds (1 .png)" in whole.stderr


def test_what_cannot_be_checked_is_told_in_a_line(tmp_path: Path) -> None:
    """A missing file is the user's mistake, a missing model the service's."""
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    no_file = docmill("check", tmp_path / "b.txt", "--engine", "fake")
    no_model = docmill("check", tmp_path / "a.txt", "--model", tmp_path / "nowhere")

    assert (2, 4) == (no_file.status, no_model.status)
    assert 1 == no_file.stderr.count("\n") == no_model.stderr.count("\n")
    assert "b.txt" in no_file.stderr
    assert "nowhere" in no_model.stderr


@pytest.mark.parametrize("redirected", ["", "2>&1"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_failure(
    tmp_path: Path, redirected: str, unbuffered: str
) -> None:
    """The status is the one of a program that a closed pipe ended, not that of bad documents."""
    lines = (json.dumps({"id": f"d{at}", "text": f"Text {at}."}) for at in range(20_000))
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    check = f"PYTHONUNBUFFERED={unbuffered} '{sys.executable}' -m docmill.cli check in.jsonl"
    command = f"{check} --engine fake {redirected} | head -n 1"
    finished = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 141 == finished.returncode
    assert 1 == finished.stdout.count("\n")
    assert "Traceback" not in finished.stderr


def test_nothing_to_check_is_told(tmp_path: Path) -> None:
    """A table without rows is a mistake, as it is where it is run."""
    (tmp_path / "in.csv").write_text("id,text\n", encoding="utf-8")
    told = docmill("check", tmp_path / "in.csv", "--engine", "fake")

    assert 2 == told.status
    assert "there are no documents in " in told.stderr


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    """No process stays, and what was checked by then stands there."""
    lines = (json.dumps({"id": f"d{at}", "text": f"Text {at}."}) for at in range(200_000))
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    checking = Running(tmp_path, "check", tmp_path / "in.jsonl", "--engine", "fake", "--json")
    wait_until(lambda: (tmp_path / "stdout").stat().st_size > 10_000, timeout_s=60)
    started = descendants(checking.process.pid)
    checking.process.send_signal(signal.SIGINT)
    ended = checking.wait(10.0)
    wait_until(lambda: not any(map(is_running, started)), what="all processes end", timeout_s=5)

    assert 130 == ended.status
    assert "interrupted after" in ended.stderr
    assert started
