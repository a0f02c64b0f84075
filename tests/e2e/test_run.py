"""`docmill run` as a user runs it: real processes, a real Redis, and the engine without a model."""

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docmill.results import Result
from docmill.results_file import write_results
from docmill.wire import Failure
from tests.support.command import Running, descendants, docmill, is_running
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until

#: Enough that the engine without a model is busy for some seconds.
MANY = 5_000


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _documents(path: Path, number: int) -> None:
    lines = (json.dumps({"id": f"d{at}", "text": f"document {at}"}) for at in range(number))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_every_document_has_one_record(tmp_path: Path) -> None:
    """Good, repeated, bad and empty documents each get exactly one record; the status tells."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        '{"id": "first", "text": "A text."}\n'
        '{"id": "again", "text": "A text."}\n'
        '{"id": "own", "text": "A text.", "prompt": "Translate this."}\n'
        "not JSON\n"
        '{"id": "empty", "text": " "}\n',
        encoding="utf-8",
    )
    finished = docmill("run", source, "-o", target, "-p", "Sum up.", "--engine", "fake")
    records = {record["custom_id"]: record for record in _records(target)}
    errors = {name: record["error"] for name, record in records.items() if record["error"]}

    assert finished.status == 1
    assert {"again", "empty", "first", f"{source}:4", "own"} == set(records)
    assert len(_records(target)) == 5
    assert errors["empty"]["code"] == "empty_document"
    assert errors[f"{source}:4"]["line"] == 4
    assert "3 answered, 2 failed" in finished.stderr
    assert "1 document answered as a repeat" in finished.stderr


def test_what_was_done_is_told(tmp_path: Path) -> None:
    """What was split, found and shared stands in each document's record, and summed up at the end.

    A check of the same input tells it beforehand.
    """
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    sentences = " ".join(f"Sentence {at} of the text says something else." for at in range(200))
    texts = {"long": sentences, "hidden": "Pay\u200bPal is a firm.", "a": "Text.", "b": "Text.\n"}
    lines = (json.dumps({"id": name, "text": text}) for name, text in texts.items())
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    asked = (source, "-p", "Sum up.", "--engine", "fake", "--truncate", "split")
    limits = ("--max-document-tokens", "400", "--rule", "zero_width=repair")

    checked = docmill("check", *asked, *limits, "--json")
    finished = docmill("run", *asked, *limits, "-o", target)

    *rows, _ = map(json.loads, checked.stdout.splitlines())
    told = {record["custom_id"]: record for record in rows}
    assert ["split", "ready", "ready", "duplicate"] == [told[name]["verdict"] for name in texts]
    found = {
        record["custom_id"]: record["response"]["body"]["docmill"] for record in _records(target)
    }
    assert told["long"]["parts"] == found["long"]["division"]["parts"] > 1
    assert told["hidden"]["findings"] == found["hidden"]["findings"]
    assert ["zero_width"] == found["hidden"]["warnings"]
    assert 1 == [found[name]["shared"] for name in "ab"].count("run")
    assert "4 answered, 0 failed" in finished.stderr
    assert f"1 document answered in {told['long']['parts']} parts" in finished.stderr
    assert "repaired    1 document: zero_width 1" in finished.stderr
    assert "1 document answered as a repeat" in finished.stderr


def test_output_is_plain_where_no_terminal_is(tmp_path: Path) -> None:
    """Into pipes go results on one side and plain lines on the other: no control codes."""
    (tmp_path / "a.md").write_text("A text.", encoding="utf-8")
    finished = docmill("run", tmp_path / "a.md", "-o", "-", "-p", "Sum up.", "--engine", "fake")

    assert finished.status == 0
    assert json.loads(finished.stdout)["custom_id"] == str(tmp_path / "a.md")
    assert "\x1b" not in finished.stderr + finished.stdout
    assert "\r" not in finished.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_an_interrupted_run_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    """Interrupted or killed, a run leaves no process behind, and the same command finishes it."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    _documents(source, MANY)
    command = ("run", source, "-o", target, "-p", "Sum up.", "--engine", "fake")
    first = Running(tmp_path, *command)
    wait_until(lambda: target.exists() and target.stat().st_size > 50_000, timeout_s=60)
    started = descendants(first.process.pid)
    first.process.send_signal(number)
    interrupted = first.wait(5.0)
    wait_until(lambda: not any(map(is_running, started)), what="all processes end", timeout_s=5)
    whole = target.read_bytes().rpartition(b"\n")[0]
    finished = docmill(*command)
    ids = Counter(record["custom_id"] for record in _records(target))

    assert len(started) >= 4
    assert 0 < whole.count(b"\n") + 1 < MANY
    assert finished.status == 0
    assert {f"d{at}": 1 for at in range(MANY)} == ids
    assert target.read_bytes().startswith(whole)
    if number == signal.SIGINT:
        assert interrupted.status == 130
        assert "run the same command again" in interrupted.stderr
        assert "Traceback" not in interrupted.stderr


def test_failed_documents_are_tried_again(tmp_path: Path) -> None:
    """Running once more asks only what has no answer, and the error's record makes room."""
    source, target = tmp_path / "in", tmp_path / "out.jsonl"
    source.mkdir()
    (source / "a.txt").write_text("A text.", encoding="utf-8")
    (source / "b.txt").write_text("", encoding="utf-8")
    command = ("run", source, "-o", target, "-p", "Sum up.", "--engine", "fake")
    first = docmill(*command)
    (source / "b.txt").write_text("Now there is one.", encoding="utf-8")
    second = docmill(*command)

    assert (first.status, second.status) == (1, 0)
    assert "skipped 1 document with an answer" in second.stderr
    assert ["a.txt", "b.txt"] == [record["custom_id"] for record in _records(target)]
    assert [None, None] == [record["error"] for record in _records(target)]


def test_answers_of_two_models_are_not_mixed_without_a_word(tmp_path: Path) -> None:
    """Whatever chose the model: the file's answers are kept, and whose they are is told."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    _documents(source, 2)
    write_results([Result("d1", "succeeded", text="Real.", model="smollm2-135m")], target)
    finished = docmill("run", source, "-o", target, "-p", "Sum up.", "--engine", "fake")

    assert 0 == finished.status
    assert 1 == finished.stderr.count("holds answers of another model (smollm2-135m)")
    assert ["d1", "d0"] == [record["custom_id"] for record in _records(target)]


def test_a_run_over_one_document_keeps_the_failures_of_others(tmp_path: Path) -> None:
    """Their records stay in the output until they are run themselves."""
    target = tmp_path / "out.jsonl"
    failed = Failure(code="empty_document", message="empty")
    write_results([Result(f"d{at}", "failed", error=failed) for at in range(3)], target)
    _documents(tmp_path / "in.jsonl", 1)
    asked = ("run", tmp_path / "in.jsonl", "-o", target, "-p", "Sum up.", "--engine", "fake")
    finished = docmill(*asked)

    assert 0 == finished.status
    outcomes = [(record["custom_id"], record["error"] is None) for record in _records(target)]
    assert [("d1", False), ("d2", False), ("d0", True)] == outcomes


def test_another_question_needs_another_output(tmp_path: Path) -> None:
    """Answers to one prompt are never skipped over as if they answered the next one."""
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    command = ("run", tmp_path / "a.txt", "-o", tmp_path / "out.jsonl", "--engine", "fake")
    first = docmill(*command, "-p", "Sum up.", "--json")
    same = docmill(*command, "-p", "Sum up.")
    other = docmill(*command, "-p", "Translate.")

    assert (first.status, same.status, other.status) == (0, 0, 2)
    assert json.loads(first.stdout)["answered"] == 1
    assert "1 answered before" in same.stderr
    assert "out.jsonl holds answers to another prompt or other parameters" in other.stderr


def test_a_sample_is_run_before_the_rest(tmp_path: Path) -> None:
    """Its answers count for the whole pile; files of other kinds are told."""
    for name in ("a.txt", "b.txt", "c.txt", "d.png"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text(f"A text {name}.", encoding="utf-8")
    command = ("run", tmp_path / "in", "-o", tmp_path / "out.jsonl", "--engine", "fake")
    sample = docmill(*command, "-p", "Sum up.", "--limit", "2", "--json")
    rest = docmill(*command, "-p", "Sum up.", "--json")

    told = [json.loads(finished.stdout) for finished in (sample, rest)]
    assert [(2, 0), (1, 2)] == [(each["answered"], each["answered_before"]) for each in told]
    assert {".png": 1} == told[1]["skipped_files"]
    assert "skipped 1 file of other kinds (1 .png)" in rest.stderr


def _bert(folder: Path) -> Path:
    """A directory that holds a model of another kind."""
    (folder / "bert").mkdir()
    config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8}
    (folder / "bert" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder / "bert"


def test_unknown_model(tmp_path: Path) -> None:
    """A model that is nowhere is one line that names it, with status 4."""
    _refused(tmp_path, ["--model", str(tmp_path / "nowhere")], 4, "nowhere")


def test_a_model_that_is_no_causal_lm(tmp_path: Path) -> None:
    """A directory with another kind of model is one line that names it, with status 4."""
    _refused(tmp_path, ["--model", str(_bert(tmp_path))], 4, "bert")


def test_unreachable_redis(tmp_path: Path) -> None:
    """A Redis that is not there is one line that names it, with status 3."""
    url = f"unix://{tmp_path}/none.sock"
    _refused(tmp_path, ["--engine", "fake", "--redis-url", url], 3, "none.sock")


def test_wrong_password(tmp_path: Path) -> None:
    """A wrong password is one line that does not repeat it, with status 3."""
    with running_redis() as server:
        docmill_url = f"unix://:wrongpass@{server.socket_path}"
        _require_password(server.url)
        line = _refused(tmp_path, ["--engine", "fake", "--redis-url", docmill_url], 3, "password")

    assert "wrongpass" not in line


def _require_password(url: str) -> None:
    import redis

    with redis.Redis.from_url(url, protocol=2) as client:
        client.config_set("requirepass", "right")


def test_unknown_setting(tmp_path: Path) -> None:
    """A misspelt variable is refused by name rather than ignored."""
    _refused(tmp_path, ["--engine", "fake"], 4, "DOCMILL_THREADZ", DOCMILL_THREADZ="2")


def _refused(tmp_path: Path, asked: list[str], status: int, word: str, **env: str) -> str:
    """Run something that cannot be, and return its one line of complaint."""
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    finished = docmill(
        *("run", tmp_path / "a.txt", "-p", "Sum up.", "-o", tmp_path / "out.jsonl"), *asked, **env
    )
    lines = [line for line in finished.stderr.split("\n") if line and line[-1] != "…"]

    assert finished.status == status, finished.stderr
    assert len(lines) == 1
    assert lines[0].startswith("docmill: ")
    assert word in lines[0]
    assert not (tmp_path / "out.jsonl").exists()
    return lines[0]


def test_answers_longer_than_the_context(tmp_path: Path) -> None:
    """A max_tokens that no document fits beside fails each one with the figures, status 1."""
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    finished = docmill(
        *("run", tmp_path / "a.txt", "-p", "Sum up.", "-o", tmp_path / "out.jsonl"),
        *("--engine", "fake", "--max-tokens", "40000"),
    )

    assert finished.status == 1
    assert "1 x context_too_small" in finished.stderr
    assert "max_tokens 40,000" in finished.stderr
