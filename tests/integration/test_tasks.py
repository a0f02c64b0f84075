"""Tasks: files read into a job and results written out, by the service, on a real Redis."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from docmill import Client
from docmill.cli import app
from docmill.keys import Keys
from docmill.link import Link
from docmill.results import Result as Record
from docmill.results_file import read_results, write_results
from docmill.tasks import MAX_ENDED, Task, ask, find, list_tasks
from docmill.wire import Failure, Header
from tests.support.canned_worker import CannedWorker, answering
from tests.support.engine_workers import make_process
from tests.support.wait import wait_until
from workers import tasks as module
from workers.process import Process
from workers.tasks import MAX_RUNS, Tasks

NEVER = threading.Event()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The service's folder of files, with two documents."""
    files = tmp_path / "files"
    (files / "papers").mkdir(parents=True)
    (files / "papers" / "a.txt").write_text("text a")
    (files / "papers" / "b.txt").write_text("text b")
    return files


@pytest.fixture
def process(redis_url: str, keys: Keys, files: Path) -> Iterator[Process]:
    """A control process' surroundings."""
    process = make_process("control", redis_url, keys, files_dir=files)
    yield process
    process.client.close()


@pytest.fixture
def tasks(process: Process) -> Tasks:
    """The tasks as the service sees them."""
    return Tasks(process)


@pytest.fixture
def link(redis_url: str, namespace: str) -> Iterator[Link]:
    """The tasks as a user's side sees them."""
    link = Link(redis_url, namespace, reconnect_s=0.0)
    yield link
    link.close()


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    """A client in the test's own namespace."""
    with Client(redis_url, namespace) as client:
        yield client


@pytest.fixture
def worker(redis_client: Any, keys: Keys) -> CannedWorker:
    """A worker that answers in capital letters when it is told to."""
    return CannedWorker(redis_client, keys)


Do = Callable[..., Task]


@pytest.fixture
def do(link: Link, tasks: Tasks) -> Do:
    """Ask for a task, let the service do it once, and look at it."""

    def do(kind: str, *paths: str, task_id: str = "t1", **asked: Any) -> Task:
        record = {
            "task_id": task_id,
            "kind": kind,
            "job_id": "job",
            "paths": paths,
            "asked_at": 1.0,
        }
        ask(link, Task.model_validate(record | asked))
        tasks.run(task_id, NEVER)
        found = find(link, task_id)
        assert found is not None
        return found

    return do


PROMPT = {"options": {"prompt": "Say"}}


def _answers(client: Client) -> dict[str, str | None]:
    return {result.custom_id: result.text for result in client.job("job").results(timeout=5)}


def test_files_are_read_into_a_job(do: Do, client: Client, worker: CannedWorker) -> None:
    """As a client would submit them: same names, what is asked, and an end to the job."""
    task = do("ingest", "papers", options={"prompt": "Say", "max_tokens": 7}, tier="interactive")

    assert ("done", {"read": 2, "refused": 0, "submitted": 2}) == (task.state, task.counts)

    with answering(worker):
        assert {"a.txt": "TEXT A", "b.txt": "TEXT B"} == _answers(client)

    assert worker.specs["a.txt"].max_tokens == 7
    assert client.job("job").status().is_finished


def test_files_are_read_as_it_was_said(do: Do, redis_client: Any, keys: Keys, files: Path) -> None:
    """In their encoding, and on behalf of whom it was asked for."""
    (files / "old.txt").write_bytes("Größe".encode("cp1252"))

    task = do("ingest", "old.txt", reading={"encoding": "cp1252"}, tenant="north", **PROMPT)

    assert "done" == task.state
    [(_, fields)] = redis_client.xrange(keys.intake("batch"))
    header = Header.decode(fields[b"h"])
    assert ("cp1252", "north") == (header.encoding, header.tenant)


def test_a_document_that_cannot_be_used_costs_itself(do: Do, client: Client, files: Path) -> None:
    """A link that leads out of the folder becomes an error record, the rest runs."""
    (files.parent / "secret.txt").write_text("secret")
    (files / "papers" / "link.txt").symlink_to(files.parent / "secret.txt")
    task = do("ingest", "papers", **PROMPT)

    assert ("done", {"read": 3, "refused": 1, "submitted": 3}) == (task.state, task.counts)
    assert client.job("job").status().failed == 1


REFUSED = {
    "outside": (("..",), PROMPT, "intake_error", "leads out"),
    "absolute": (("/etc",), PROMPT, "intake_error", "leads out"),
    "missing": (("nothing",), PROMPT, "intake_error", "No such file"),
    "no prompt": (("papers",), {}, "job_rejected", "there is no prompt"),
    "odd option": (("papers",), {"options": {"on_open": 1}}, "job_rejected", "'on_open'"),
    "bad option": (
        ("papers",),
        {"options": {"prompt": "x", "max_tokens": 0}},
        "job_rejected",
        "max_tokens",
    ),
    "odd reading": (
        ("papers",),
        PROMPT | {"reading": {"inside": "/"}},
        "job_rejected",
        "unknown option 'inside'",
    ),
    "bad separator": (
        ("papers",),
        PROMPT | {"reading": {"separator": "||"}},
        "intake_error",
        "separator '||'",
    ),
    "bad encoding": (("papers",), PROMPT | {"reading": {"encoding": "x"}}, "intake_error", "'x'"),
    "bad tier": (("papers",), PROMPT | {"tier": "x"}, "job_rejected", "tier"),
    "bad job": (("papers",), PROMPT | {"job_id": "a b"}, "job_rejected", "job_id"),
}


@pytest.mark.parametrize(("paths", "asked", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused(
    do: Do, paths: tuple[str, ...], asked: dict[str, Any], code: str, words: str
) -> None:
    """The task fails with the reason, and is not tried again."""
    task = do("ingest", *paths, **asked)

    assert task.state == "failed"
    assert task.error is not None
    assert (code, True) == (task.error.code, words in task.error.message)


@pytest.mark.parametrize("folder", [None, Path("files"), Path("/no/such/folder")])
def test_without_a_folder_nothing_is_read_or_written(
    redis_url: str, keys: Keys, link: Link, folder: Path | None
) -> None:
    """A service whose operator named no usable folder says so."""
    process = make_process("control", redis_url, keys, files_dir=folder)
    task = Task(task_id="t1", kind="ingest", job_id="job", paths=("x",), asked_at=1.0)
    ask(link, task)
    Tasks(process).run("t1", NEVER)
    process.client.close()
    found = find(link, "t1")

    assert found is not None
    assert found.error is not None
    assert found.error.code == "config_error"
    assert "DOCMILL_FILES_DIR" in found.error.message


def _fill(files: Path, number: int) -> None:
    lines = [json.dumps({"id": f"d{at}", "text": f"text {at}"}) for at in range(number)]
    (files / "many.jsonl").write_text("\n".join(lines))


def test_an_interrupted_ingest_goes_on(
    do: Do, link: Link, tasks: Tasks, client: Client, worker: CannedWorker, files: Path
) -> None:
    """Given up in the middle, it waits on the list; done again, the job has each document once."""
    _fill(files, 500)
    link.client.hset(link.keys.backlog, mapping={"max_docs": 100})
    given_up = threading.Event()
    task = Task(task_id="t1", kind="ingest", job_id="job", paths=("many.jsonl",), asked_at=1.0)
    ask(link, task.model_copy(update=PROMPT))
    first = threading.Thread(target=tasks.run, args=("t1", given_up))
    first.start()
    wait_until(lambda: link.client.scard(link.keys.custom_ids("job")) == 100)
    given_up.set()
    first.join(5)
    found = find(link, "t1")

    assert found is not None
    assert ("queued", 0) == (found.state, found.num_runs)
    assert tasks.waiting() == ["t1"]

    with answering(worker):
        tasks.run("t1", NEVER)
        names = [result.custom_id for result in client.job("job").results(timeout=5)]

    assert sorted(f"d{at}" for at in range(500)) == sorted(names)
    assert tasks.waiting() == []


def test_an_attempt_that_was_taken_over_ends_itself(
    link: Link, redis_url: str, keys: Keys, files: Path, tasks: Tasks, monkeypatch: Any
) -> None:
    """A process that was frozen and wakes up neither goes on nor says anything about the task."""
    monkeypatch.setattr(module, "_NOTE_EVERY_S", 0.0)
    (files / "empty").mkdir()
    task = Task(task_id="t1", kind="ingest", job_id="job", paths=("papers",), asked_at=1.0)
    ask(link, task.model_copy(update=PROMPT))
    noted = threading.Event()
    may_go_on = threading.Event()
    work = tasks._store

    def slow_store(task: Task, **changed: Any) -> Task | None:
        if "counts" in changed and not may_go_on.is_set():
            noted.set()
            may_go_on.wait(10)
        return work(task, **changed)

    monkeypatch.setattr(tasks, "_store", slow_store)
    frozen = threading.Thread(target=tasks.run, args=("t1", NEVER))
    frozen.start()
    assert noted.wait(5)
    other = make_process("control", redis_url, keys, files_dir=files)
    Tasks(other).run("t1", NEVER)
    may_go_on.set()
    frozen.join(5)
    found = find(link, "t1")
    other.client.close()

    assert found is not None
    assert ("done", other.consumer) == (found.state, found.holder)
    assert link.client.hlen(keys.tasks) == 0


def test_a_task_that_kills_is_given_up(do: Do, link: Link) -> None:
    """After so many processes died of it, it fails rather than being tried for ever."""
    task = do("ingest", "papers", num_runs=MAX_RUNS - 1, **PROMPT)

    assert task.state == "done"

    task = do("ingest", "papers", task_id="t2", num_runs=MAX_RUNS, **PROMPT)

    assert task.state == "failed"
    assert task.error is not None
    assert f"{MAX_RUNS} control processes" in task.error.message


@pytest.fixture
def answered(client: Client, worker: CannedWorker) -> None:
    """A job with two answers."""
    client.submit([("a", "text a"), ("b", "text b")], prompt="Say", job_id="job")
    with answering(worker):
        client.job("job").wait(progress=False, timeout=5)


def _lines(path: Path) -> set[str]:
    return {json.loads(line)["custom_id"] for line in path.read_text().splitlines()}


@pytest.mark.usefixtures("answered")
def test_results_are_written_to_a_file(do: Do, files: Path) -> None:
    """All of a job's results, in a folder that is made, and nothing beside them."""
    task = do("export", "out/answers.jsonl")

    assert ("done", {"results": 2}) == (task.state, task.counts)
    assert {"a", "b"} == _lines(files / "out" / "answers.jsonl")
    assert ["answers.jsonl"] == [path.name for path in (files / "out").iterdir()]


@pytest.mark.usefixtures("answered")
def test_an_export_may_be_done_again(do: Do, files: Path) -> None:
    """An earlier export is replaced, and what a killed attempt left is removed."""
    (files / ".docmill-t1-killed").write_text("half a")
    (files / "answers.jsonl").write_text("")
    do("export", "answers.jsonl")
    task = do("export", "answers.jsonl", task_id="t2")

    assert task.state == "done"
    assert {"a", "b"} == _lines(files / "answers.jsonl")
    assert ["answers.jsonl", "papers"] == sorted(path.name for path in files.iterdir())


@pytest.mark.usefixtures("answered")
def test_an_export_keeps_what_is_of_other_documents(do: Do, files: Path) -> None:
    """Another job's answers in the file stay; those of the same documents are replaced."""
    others = [Record(name, "succeeded", text="old") for name in ("c", "a")]
    write_results(others, files / "answers.jsonl")
    task = do("export", "answers.jsonl")

    assert {"results": 2} == task.counts
    texts = {record.custom_id: record.text for record in read_results(files / "answers.jsonl")}
    assert {"a", "b", "c"} == set(texts)
    assert ("old", True) == (texts["c"], texts["a"] != "old")
    assert 3 == len((files / "answers.jsonl").read_text().splitlines())


UNWRITABLE = {
    "outside": ("../out.jsonl", "leads out"),
    "link": ("link/out.jsonl", "leads out"),
    "folder": ("papers", "is no file"),
    "itself": ("", "is no file"),
    "other content": ("papers/a.txt", "something else"),
    "other lines": ("papers/lines.txt", "something else"),
    "below a file": ("papers/a.txt/out.jsonl", "cannot be"),
}


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize(("path", "words"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_cannot_be_written_is_refused(do: Do, files: Path, path: str, words: str) -> None:
    """Neither what lies outside nor what holds something else is touched."""
    (files / "link").symlink_to(files.parent)
    (files / "papers" / "lines.txt").write_text("{}\n")
    task = do("export", path)

    assert task.state == "failed"
    assert task.error is not None
    assert words in task.error.message
    assert (files / "papers" / "a.txt").read_text() == "text a"
    assert not (files.parent / "out.jsonl").exists()


def test_an_export_of_no_job_fails(do: Do) -> None:
    """There is nothing to wait for."""
    task = do("export", "out.jsonl")

    assert task.error is not None
    assert task.error.code == "job_not_found"


def test_an_export_waits_for_the_jobs_end(
    link: Link, tasks: Tasks, client: Client, worker: CannedWorker, do: Do, files: Path
) -> None:
    """It is not begun before, and takes no place meanwhile; one of what is there now is."""
    export = Task(task_id="t1", kind="export", job_id="job", paths=("o.jsonl",), asked_at=1.0)
    ingest = Task(task_id="t0", kind="ingest", job_id="job", paths=("papers",), asked_at=1.0)
    ask(link, export)
    ask(link, ingest.model_copy(update=PROMPT))

    assert tasks.waiting() == ["t0"]  # who fills the job goes first

    tasks.run("t0", NEVER)

    assert tasks.waiting() == []

    worker.prepare()
    worker.complete(1)
    partial = do("export", "now.jsonl", task_id="t2", is_partial=True)

    assert ("done", {"results": 1}) == (partial.state, partial.counts)

    worker.complete()

    assert tasks.waiting() == ["t1"]

    tasks.run("t1", NEVER)

    assert {"a.txt", "b.txt"} == _lines(files / "o.jsonl")


def test_what_nobody_can_read_is_taken_off_the_list(link: Link, tasks: Tasks, do: Do) -> None:
    """A record that is none, or another's, keeps no task from being done."""
    task = Task(task_id="t1", kind="ingest", job_id="job", paths=("papers",), asked_at=1.0)
    ask(link, task)
    link.client.hset(link.keys.tasks, mapping={"x": b"not msgpack", "../y": task.encode()})

    assert tasks.waiting() == ["t1"]
    assert link.client.hkeys(link.keys.tasks) == [b"t1"]


def test_ended_tasks_are_forgotten_in_time(link: Link, tasks: Tasks, process: Process) -> None:
    """Those that ended long ago go, and the oldest of very many."""
    now = process.client.time()[0]
    failure = Failure(code="x", message="y")
    records = {}
    for number in range(MAX_ENDED + 3):
        ended_at = 1.0 if number == 0 else now - number
        task = Task(
            task_id=f"t{number}",
            kind="export",
            job_id="job",
            paths=("o",),
            asked_at=1.0,
            state="failed",
            error=failure,
            ended_at=ended_at,
        )
        records[task.task_id] = task.encode()
    link.client.hset(link.keys.tasks_ended, mapping=records)
    tasks.forget_ended()
    left = {task.task_id for task in list_tasks(link)}

    assert {f"t{number}" for number in range(1, MAX_ENDED + 1)} == left


Command = Callable[..., Result]


@pytest.fixture
def docmill(redis_url: str, namespace: str, tmp_path: Path) -> Command:
    """Run `docmill` against the test's namespace."""

    def run(*arguments: str) -> Result:
        here = ["--redis-url", redis_url, "--namespace", namespace, "--state-dir", str(tmp_path)]
        return CliRunner().invoke(app.app, [*arguments, *here])

    return run


def test_the_command_line_asks_and_shows(
    docmill: Command, tasks: Tasks, worker: CannedWorker, client: Client, files: Path
) -> None:
    """`ingest` prints the job's id, `export` its own, and `tasks` shows how far they are."""
    asked = ("papers", "-p", "Say", "--job-id", "job", "--encoding", "utf-8", "--tenant", "north")
    job_id = docmill("ingest", *asked).stdout.strip()
    task_id = docmill("export", job_id, "out.jsonl").stdout.strip()
    shown = docmill("tasks").stdout.splitlines()

    assert job_id == "job"
    assert shown[0].startswith(f"{task_id}  export of job: queued")
    assert "ingest into job: queued, papers" in shown[1]

    for waiting in tasks.waiting():
        tasks.run(waiting, NEVER)
    with answering(worker):
        client.job(job_id).wait(progress=False, timeout=5)
    tasks.run(task_id, NEVER)
    told = json.loads(docmill("tasks", "--json").stdout)

    assert [("export", "done"), ("ingest", "done")] == [(one["kind"], one["state"]) for one in told]
    assert {"a.txt", "b.txt"} == _lines(files / "out.jsonl")


def test_the_command_line_waits_for_the_end(docmill: Command, tasks: Tasks) -> None:
    """With --wait the status says whether it was done, and the message why not."""
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.wait(0.01):
            for task_id in tasks.waiting():
                tasks.run(task_id, NEVER)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        done = docmill("ingest", "papers", "-p", "Say", "--wait")
        failed = docmill("ingest", "absent", "-p", "Say", "--wait")
    finally:
        stopping.set()
        thread.join()

    assert (0, 1) == (done.exit_code, failed.exit_code)
    assert "done (2 read, 0 refused, 2 submitted)" in done.stderr
    assert "intake_error: input 'absent' cannot be read" in failed.stderr


def test_the_command_line_refuses_before_it_asks(docmill: Command, link: Link) -> None:
    """What no service could do is not put on the list."""
    for arguments in (
        ("ingest", "papers", "-p", "x", "--tier", "slow"),
        ("ingest", "papers", "-p", "x", "--job-id", "a b"),
        ("ingest", "papers", "-p", "{document}{document}"),
        ("ingest", "papers", "-p", "x", "--tenant", "x" * 129),
        ("export", "a b", "out.jsonl"),
    ):
        assert docmill(*arguments).exit_code == 2

    assert list_tasks(link) == []
