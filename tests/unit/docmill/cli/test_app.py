"""The command line's words and exit statuses, as far as they need no service."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docmill.cli import app
from docmill.cli.exit import TABLE, status_of
from docmill.cli.options import parse_age
from docmill.cli.service import how_to
from docmill.errors import BrokerUnavailable, ConfigError, IntakeError, ServiceError
from docmill.results import Result

RUNNER = CliRunner()
DEAD = ("list", "show", "retry", "drop")
COMMANDS: tuple[tuple[str, ...], ...] = (
    *((name,) for name in ("run", "check", "up", "submit", "status", "results")),
    *((name,) for name in ("pause", "resume", "cancel", "retry")),
    *((name,) for name in ("ingest", "export", "tasks")),
    *(("dead", name) for name in DEAD),
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCMILL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")


def _no_rights(folder: Path) -> None:
    (folder / "locked").mkdir()
    (folder / "locked").chmod(0)


def _write(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(content, encoding="utf-8")

    return write


TWICE = '{"id": "a", "text": "x"}\n{"id": "b", "text": "x"}\n{"id": "a", "text": "y"}\n'

#: What is there, what is asked, and words of the one line that answers.
UNUSABLE = {
    "missing file": (_write("a.txt", "x"), ["b.txt"], ["'b.txt'", "No such file"]),
    "nothing matches": (_write("a.txt", "x"), ["*.md"], ["nothing matches '*.md'"]),
    "empty folder": (
        lambda folder: (folder / "in").mkdir(),
        ["in"],
        ["'in'", "holds no files", ".txt"],
    ),
    "empty lines": (_write("a.jsonl", "\n"), ["a.jsonl"], ["no documents", "a.jsonl"]),
    "same id twice": (_write("a.jsonl", TWICE), ["a.jsonl"], ["'a'", "a.jsonl:1", "a.jsonl:3"]),
    "no prompt file": (_write("a.txt", "x"), ["a.txt", "-p", "@p.txt"], ["p.txt", "No such file"]),
    "empty prompt": (_write("a.txt", "x"), ["a.txt", "-p", ""], ["the prompt is empty"]),
    "bad top-p": (_write("a.txt", "x"), ["a.txt", "--top-p", "0"], ["--top-p: ", "greater than 0"]),
    "bad truncate": (
        _write("a.txt", "x"),
        ["a.txt", "--truncate", "tial"],
        ["--truncate: ", "tial"],
    ),
    "bad threshold": (
        _write("a.txt", "x"),
        ["a.txt", "--near-threshold", "0.1"],
        ["--near-threshold: ", "greater than or equal to 0.5"],
    ),
    "bad dedup": (_write("a.txt", "x"), ["a.txt", "--dedup", "near"], ["--dedup: ", "near"]),
    "unknown rule": (
        _write("a.txt", "x"),
        ["a.txt", "--rule", "no_such=flag"],
        ["--rule: there is no rule 'no_such'"],
    ),
    "nothing to combine": (
        _write("a.txt", "x"),
        ["a.txt", "--combine-prompt", "Join."],
        ["--combine-prompt is asked", "truncate must be 'split'"],
    ),
    "empty combine prompt": (
        _write("a.txt", "x"),
        ["a.txt", "--truncate", "split", "--combine-prompt", " "],
        ["--combine-prompt is empty"],
    ),
    "columns of no table": (
        _write("a.jsonl", '{"id": "a", "text": "x"}\n'),
        ["a.jsonl", "--column", "nope"],
        ["--column is for .csv and .tsv files", "none in a.jsonl"],
    ),
    "job id": (_write("a.txt", "x"), ["a.txt", "--job-id", "a b"], ["job_id 'a b' must be"]),
    "long tenant": (_write("a.txt", "x"), ["a.txt", "--tenant", "x" * 129], ["tenant of 129"]),
    "namespace": (_write("a.txt", "x"), ["a.txt", "--namespace", "a b"], ["namespace 'a b' must"]),
    "Redis URL": (_write("a.txt", "x"), ["a.txt", "--redis-url", "nowhere"], ["'nowhere' cannot"]),
    "unknown encoding": (
        _write("a.txt", "x"),
        ["a.txt", "--encoding", "utf-88"],
        ["'utf-88' is not known"],
    ),
    "foreign output": (
        lambda folder: [_write(name, "text\n")(folder) for name in ("a.txt", "out.jsonl")],
        ["a.txt"],
        ["out.jsonl, line 1", "another --output"],
    ),
    "output is input": (
        _write("out.jsonl", '{"id": "a", "text": "x"}\n'),
        ["out.jsonl"],
        ["out.jsonl is also an input"],
    ),
}


@pytest.mark.parametrize(("prepare", "asked", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_run_refuses_what_it_cannot_use(
    prepare: Callable[[Path], object],
    asked: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unusable input is one line that names it, status 2, and nothing is started."""
    # these tests also run where only the client is installed
    monkeypatch.setattr("docmill.cli.run.find_service", lambda: tmp_path)
    prepare(tmp_path)
    prompt = [] if "-p" in asked else ["-p", "Summarize."]
    finished = RUNNER.invoke(app.app, ["run", *asked, *prompt, "-o", "out.jsonl"])

    assert finished.exit_code == 2
    assert finished.stderr.count("\n") == 1
    assert [word for word in words if word not in finished.stderr] == []
    assert "Traceback" not in finished.output


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--tenant", ""], ["--tenant", "it is empty"]),
        (["--model", "no/dir", "--engine", "fake"], ["--model", "fake engine answers without a"]),
        (["--threads", "1025"], ["--threads"]),
        (["--engine", "faek"], ["--engine", "'faek' is none of torch, fake"]),
        (["--job-id", "a b"], ["job_id 'a b'"]),
    ],
)
def test_options_are_checked_where_nothing_is_left_to_do(
    asked: list[str], words: list[str], tmp_path: Path
) -> None:
    """A mistyped option is refused by name although the output has all answers."""
    _write("a.txt", "x")(tmp_path)
    _write("out.jsonl", Result("a.txt", "succeeded", text="y").to_json() + "\n")(tmp_path)
    finished = RUNNER.invoke(app.app, ["run", "a.txt", "-p", "Say", "-o", "out.jsonl", *asked])

    assert 2 == finished.exit_code
    assert [] == [word for word in words if word not in finished.stderr]
    assert "starting" not in finished.stderr


def test_a_model_that_is_set_for_all_commands_may_be_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that is typed beside the engine without a model is a contradiction."""
    monkeypatch.setattr("docmill.cli.run.find_service", lambda: tmp_path)
    monkeypatch.setenv("DOCMILL_MODEL", "some/model")
    _write("a.txt", "x")(tmp_path)
    _write("out.jsonl", Result("a.txt", "succeeded", text="y").to_json() + "\n")(tmp_path)
    asked = ["run", "a.txt", "-p", "Say", "-o", "out.jsonl", "--engine", "fake"]

    assert 0 == RUNNER.invoke(app.app, asked).exit_code


def test_run_tells_of_answers_of_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept, and one line names both models; those of the model asked stay silent."""
    monkeypatch.setattr("docmill.cli.run.find_service", lambda: tmp_path)
    _write("a.txt", "x")(tmp_path)
    _write("out.jsonl", Result("a.txt", "succeeded", text="y", model="old").to_json() + "\n")(
        tmp_path
    )
    asked = ["run", "a.txt", "-p", "Say", "-o", "out.jsonl", "--model"]
    told = [RUNNER.invoke(app.app, [*asked, model]) for model in ("old", "new")]

    assert [0, 0] == [run.exit_code for run in told]
    line = "out.jsonl holds answers of another model (old); they are kept"
    assert [0, 1] == [run.stderr.count(line) for run in told]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_run_names_a_folder_that_it_may_not_read(tmp_path: Path) -> None:
    """A folder without read permission is refused by name."""
    _no_rights(tmp_path)
    finished = RUNNER.invoke(app.app, ["run", "locked", "-p", "Summarize.", "-o", "out.jsonl"])

    assert finished.exit_code == 2
    assert "locked" in finished.stderr


def test_a_prompt_is_asked_for_where_no_document_has_one(tmp_path: Path) -> None:
    """Without a prompt anywhere the message names the document and the option."""
    _write("a.jsonl", 'not JSON\n{"id": "b", "text": "x"}\n')(tmp_path)
    finished = RUNNER.invoke(app.app, ["run", "a.jsonl", "-o", "out.jsonl"])

    assert finished.exit_code == 2
    assert "no prompt for b" in finished.stderr
    assert "--prompt" in finished.stderr


def test_a_client_alone_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the service beside it, run ends with status 4 and names the ways out."""
    monkeypatch.setattr("docmill.cli.service_process.BESIDE", tmp_path)
    _write("a.txt", "x")(tmp_path)
    finished = RUNNER.invoke(app.app, ["run", "a.txt", "-p", "Summarize.", "-o", "out.jsonl"])

    assert finished.exit_code == 4
    assert "only docmill's client" in finished.stderr
    assert "docmill submit --redis-url" in finished.stderr
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        *([name, "j"] for name in ("results", "pause", "resume", "cancel", "retry")),
        ["dead", "list"],
        *(["dead", name, "1-1"] for name in ("show", "retry", "drop")),
    ],
)
def test_without_a_service_the_remedy_is_named(command: list[str]) -> None:
    """Commands that need a running service say how to start or name one."""
    finished = RUNNER.invoke(app.app, command)

    assert finished.exit_code == 2
    assert "docmill up" in finished.stderr
    assert "--redis-url" in finished.stderr


def test_a_redis_that_is_not_there_has_a_status_of_its_own(tmp_path: Path) -> None:
    """An unreachable Redis is status 3, and the message never holds the password."""
    url = f"unix://:secret@{tmp_path}/no.sock"
    finished = RUNNER.invoke(app.app, ["status", "--redis-url", url])

    assert finished.exit_code == 3
    assert "no.sock" in finished.stderr
    assert "secret" not in finished.stderr


def test_debug_shows_the_error_as_it_was_raised(tmp_path: Path) -> None:
    """With --debug an error of ours passes through with its traceback."""
    finished = RUNNER.invoke(app.app, ["status", "--debug"])

    assert isinstance(finished.exception, ConfigError)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches(command: tuple[str, ...]) -> None:
    """Each command's help has the exit statuses and, but for status, an example."""
    shown = RUNNER.invoke(app.app, [*command, "--help"]).output

    assert "Exit status" in shown
    assert ("--redis-url" in shown) == (command != ("check",))
    usage, _, rest = shown.partition("Usage: ")[2].partition("\n")
    assert command == ("status",) or f"docmill {' '.join(command)}" in rest, usage


def test_the_help_of_a_group_teaches_too() -> None:
    """Without a command, the dead letters' help comes, with an example of each."""
    shown = RUNNER.invoke(app.app, ["dead"]).output

    assert [] == [name for name in DEAD if f"docmill dead {name}" not in shown]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--older-than", "7x"], "7x"),
        (["list", "--newer-than", "-1d"], "no age"),
        (["retry"], "which dead letters"),
        (["retry", "1-1", "--all"], "which dead letters"),
        (["drop", "--all", "--job", "j", "--yes"], "which dead letters"),
    ],
)
def test_dead_letters_are_named_one_way(arguments: list[str], words: str) -> None:
    """An age that is none, no choice at all, or two of them are refused before anything is done."""
    here = [] if arguments[0] == "list" else ["--redis-url", "unix:///nowhere.sock"]
    finished = RUNNER.invoke(app.app, ["dead", *arguments, *here])

    assert finished.exit_code == 2
    assert words in finished.stderr


def test_ages_are_in_the_units_people_use() -> None:
    """Seconds to weeks, in parts as well."""
    assert [90.0, 1800.0, 5400.0, 604800.0, 1209600.0] == [
        parse_age(text) for text in ("90s", "30m", "1.5h", "7d", "2w")
    ]


def test_the_help_is_quick_and_light() -> None:
    """Showing help loads neither redis nor pydantic, let alone torch."""
    program = (
        "import sys, docmill.cli;"
        "loaded = [name for name in ('redis', 'pydantic', 'torch') if name in sys.modules];"
        "print(loaded)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert shown == "[]\n"


def test_exit_statuses_are_documented() -> None:
    """The statuses that errors map to are those of the table."""
    statuses = {status_of(kind("x")) for kind in (IntakeError, BrokerUnavailable, ServiceError)}

    assert statuses == {2, 3, 4}
    assert all(f"{status} " in TABLE for status in (0, 1, *statuses, 130))


@pytest.mark.parametrize(
    "asked",
    [
        ["run", "a.txt", "-o", "o", "--engine", "faek"],
        ["run", "a.txt", "-o", "o", "--dtype", "faek"],
        ["check", "a.txt", "--engine", "faek"],
        ["up", "--engine", "faek"],
    ],
    ids=" ".join,
)
def test_settings_that_there_are_not_are_refused_by_name(asked: list[str]) -> None:
    """As typed, before a service is started."""
    finished = RUNNER.invoke(app.app, asked)

    assert 2 == finished.exit_code
    assert f"'{asked[-2]}'" in finished.stderr
    assert "'faek' is none of " in finished.stderr


def test_standard_output_takes_one_kind_of_data() -> None:
    """Results and the summary's JSON do not go to standard output together."""
    finished = RUNNER.invoke(app.app, ["run", "a.txt", "-o", "-", "--json"])

    assert finished.exit_code == 2


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_only_true_exit_statuses_are_promised(command: tuple[str, ...]) -> None:
    """What answers no documents promises no answers; what starts no service has no such status."""
    shown = " ".join(RUNNER.invoke(app.app, [*command, "--help"]).output.split())
    statuses = shown.partition("Exit status: ")[2]

    assert (command[0] in ("run", "check", "submit", "results")) == ("answer" in statuses)
    assert (command[0] in ("run", "check", "up")) == ("4 the service" in statuses)
    assert (command == ("run",)) == ("the service's log as it comes" in shown)


def test_a_password_is_not_shown() -> None:
    """How to use a service whose Redis has one tells the file that has it."""
    said = how_to("m", "redis://:secret@host:6379/0", "default", Path("state"))

    assert "secret" not in said
    assert "redis_url in state/service.json" in said
    assert "service.json" not in how_to("m", "unix:///redis.sock", "default", Path("state"))
