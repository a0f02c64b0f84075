"""Control processes that are killed, stopped or lose their Redis in the middle of a task."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from docmill import Client
from docmill.keys import Keys
from docmill.link import Link
from docmill.tasks import Task, ask, find
from tests.support.canned_worker import CannedWorker, answering
from tests.support.engine_workers import make_process
from tests.support.processes import running
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until
from workers import control
from workers.process import Process
from workers.redis_server import start_embedded
from workers.rounds import Rounds

NUM_DOCS = 300
#: So many fit into the backlog: an ingest of more is in its middle until somebody answers.
ROOM = 100
#: Within this time an interrupted task is taken up again.
TAKEN_UP_S = 15.0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a file of many documents."""
    lines = [json.dumps({"id": f"d{at}", "text": f"text {at}"}) for at in range(NUM_DOCS)]
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def link(redis_url: str, namespace: str) -> Iterator[Link]:
    """The tasks as a user's side sees them."""
    with _linked(redis_url, Keys(namespace)) as link:
        yield link


@contextmanager
def _linked(url: str, keys: Keys) -> Iterator[Link]:
    link = Link(url, keys.namespace, reconnect_s=30.0)
    try:
        yield link
    finally:
        link.close()


def _ingest(task_id: str = "t1", job_id: str = "job") -> Task:
    return Task(
        task_id=task_id,
        kind="ingest",
        job_id=job_id,
        paths=("many.jsonl",),
        options={"prompt": "Say"},
        asked_at=1.0,
    )


def _found(link: Link, task_id: str = "t1") -> Task:
    found = find(link, task_id)
    assert found is not None
    return found


def _wait_for_middle(link: Link) -> Task:
    """Wait until the ingest has filled the backlog."""
    ids = link.keys.custom_ids("job")
    wait_until(lambda: link.run(lambda: link.client.scard(ids)) == ROOM)
    task = _found(link)
    assert task.state == "running"
    return task


def _answer_everything(url: str, keys: Keys) -> None:
    """Let a worker answer, and make sure that the job has each document once."""
    with Client(url, keys.namespace) as client:
        worker = CannedWorker(client.job("job")._link.client, keys)
        with answering(worker):
            names = [result.custom_id for result in client.job("job").results(timeout=20)]

    assert Counter(f"d{at}" for at in range(NUM_DOCS)) == Counter(names)


@contextmanager
def _working(process: Process) -> Iterator[None]:
    thread = threading.Thread(target=control.work, args=(process,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        process.stop.set()
        thread.join(15)
        process.client.close()
        assert not thread.is_alive()


@contextmanager
def _two_processes(
    redis_url: str, namespace: str, files: Path
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    settings: dict[str, object] = {
        "redis_url": redis_url,
        "namespace": namespace,
        "files_dir": files,
        "backlog_max_docs": ROOM,
        "engine": "fake",
    }
    with (
        running("workers.control", **settings) as one,
        running("workers.control", **settings) as two,
    ):
        yield [one, two]


def _holder(processes: list["subprocess.Popen[bytes]"], task: Task) -> "subprocess.Popen[bytes]":
    assert task.holder is not None
    pid = int(task.holder.split("-")[-2])
    return next(process for process in processes if process.pid == pid)


def test_a_killed_processes_task_is_taken_up_by_another(
    redis_url: str, keys: Keys, link: Link, files: Path
) -> None:
    """After SIGKILL in mid-ingest the other process goes on in time; no document is there twice."""
    with _two_processes(redis_url, keys.namespace, files) as processes:
        ask(link, _ingest())
        first = _wait_for_middle(link)
        killed = _holder(processes, first)
        killed.kill()
        killed.wait()
        killed_at = time.monotonic()
        wait_until(lambda: _found(link).holder != first.holder, timeout_s=TAKEN_UP_S)
        taken_up_s = time.monotonic() - killed_at
        _answer_everything(redis_url, keys)
        wait_until(lambda: _found(link).has_ended)

    task = _found(link)
    assert ("done", 2, NUM_DOCS) == (task.state, task.num_runs, task.counts["submitted"])
    assert 0 < taken_up_s < TAKEN_UP_S


def test_a_stopped_processes_task_is_taken_up_at_once(
    redis_url: str, keys: Keys, link: Link, files: Path
) -> None:
    """SIGTERM ends the process in mid-ingest without waiting for it, and another goes on soon."""
    with _two_processes(redis_url, keys.namespace, files) as processes:
        ask(link, _ingest())
        first = _wait_for_middle(link)
        stopped = _holder(processes, first)
        stopped.send_signal(signal.SIGTERM)

        assert stopped.wait(5) == 0

        wait_until(lambda: _found(link).holder != first.holder, timeout_s=5)
        _answer_everything(redis_url, keys)
        wait_until(lambda: _found(link).has_ended)

    assert _found(link).state == "done"


def test_a_frozen_processes_task_is_done_once(
    redis_url: str, keys: Keys, link: Link, files: Path
) -> None:
    """A process that wakes up after its task was given away does no harm to it."""
    with _two_processes(redis_url, keys.namespace, files) as processes:
        ask(link, _ingest())
        first = _wait_for_middle(link)
        frozen = _holder(processes, first)
        os.kill(frozen.pid, signal.SIGSTOP)
        wait_until(lambda: _found(link).holder != first.holder, timeout_s=TAKEN_UP_S)
        os.kill(frozen.pid, signal.SIGCONT)
        _answer_everything(redis_url, keys)
        wait_until(lambda: _found(link).has_ended)
        wait_until(lambda: not link.client.exists(keys.tasks))

    assert ("done", NUM_DOCS) == (_found(link).state, _found(link).counts["submitted"])


def test_a_redis_that_is_killed_interrupts_a_task_for_seconds(files: Path, keys: Keys) -> None:
    """Rounds and the task go on in the same process then; no document is lost or there twice."""
    folder = Path(tempfile.mkdtemp(prefix="dm-test-"))
    server = start_embedded(folder)
    settings = {"files_dir": files, "backlog_max_docs": ROOM, "heartbeat_ttl_s": 0.5}
    process = make_process("control", server.url, keys, **settings)
    with _linked(server.url, keys) as link, _working(process), capture_logs() as logged:
        ask(link, _ingest())
        first = _wait_for_middle(link)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: [one for one in logged if one["event"] == "redis.failed"])
        server = start_embedded(folder)
        link.run(lambda: link.client.hset(keys.consumers, "gone", "{}"))
        wait_until(lambda: not link.client.hexists(keys.consumers, "gone"), timeout_s=5)
        wait_until(lambda: _found(link).run != first.run, timeout_s=TAKEN_UP_S)
        _answer_everything(server.url, keys)
        wait_until(lambda: _found(link).has_ended)

        assert ("done", NUM_DOCS) == (_found(link).state, _found(link).counts["submitted"])

    server.stop()
    shutil.rmtree(folder)


def test_after_flushall_everything_goes_on(files: Path, keys: Keys) -> None:
    """A Redis that has lost its data is a new one: limits come back, rounds and tasks are done."""
    with running_redis() as server, _linked(server.url, keys) as link:
        with _working(make_process("control", server.url, keys, files_dir=files)):
            ask(link, _ingest("lost"))
            wait_until(lambda: _found(link, "lost").has_ended)
            link.client.flushall()
            wait_until(lambda: link.client.hexists(keys.backlog, "max_docs"), timeout_s=5)

            assert find(link, "lost") is None

            ask(link, _ingest())
            wait_until(lambda: _found(link).has_ended, timeout_s=5)

        assert _found(link).counts["submitted"] == NUM_DOCS


def _fill(client: Any) -> None:
    with contextlib.suppress(OutOfMemoryError):
        while client.rpush("filler", b"x" * 10_000):
            pass


def test_a_full_redis_is_looked_after(files: Path, keys: Keys) -> None:
    """Without memory to schedule anything the dead are still found; with room, all goes on."""
    folder = Path(tempfile.mkdtemp(prefix="dm-test-"))
    server = start_embedded(folder, is_durable=False, max_memory_bytes=32 * 1024**2)
    process = make_process("control", server.url, keys, files_dir=files, heartbeat_ttl_s=2.0)
    with _linked(server.url, keys) as link, _working(process), capture_logs() as logged:
        wait_until(lambda: link.client.hexists(keys.backlog, "max_docs"))
        link.client.set(keys.heartbeat("gone"), 1, px=1000)
        link.client.hset(keys.consumers, "gone", "{}")
        _fill(link.client)
        wait_until(lambda: not link.client.hexists(keys.consumers, "gone"))
        with pytest.raises(OutOfMemoryError):
            link.client.set("still", "full")
        link.client.delete("filler")
        ask(link, _ingest())
        wait_until(lambda: _found(link).has_ended)
        wait_until(lambda: [one for one in logged if one["event"] == "redis.recovered"])

        assert _found(link).state == "done"

    server.stop()
    shutil.rmtree(folder)
    told = ["redis.failed", "redis.recovered"]
    assert told == [one["event"] for one in logged if one["event"] in told]


def test_two_namespaces_tasks_do_not_meet(
    redis_url: str, keys: Keys, link: Link, files: Path, tmp_path: Path
) -> None:
    """Each installation does its own tasks, of the same name too, with its own files."""
    other_keys = Keys(f"{keys.namespace}-2")
    (tmp_path / "other").mkdir()
    mine = make_process("control", redis_url, keys, files_dir=files)
    theirs = make_process("control", redis_url, other_keys, files_dir=tmp_path / "other")
    with _linked(redis_url, other_keys) as other_link:
        with _working(mine), _working(theirs):
            for one in (link, other_link):
                ask(one, _ingest())
            wait_until(lambda: _found(link).has_ended and _found(other_link).has_ended)

        assert ("done", mine.consumer) == (_found(link).state, _found(link).holder)
        assert ("failed", theirs.consumer) == (_found(other_link).state, _found(other_link).holder)


def test_each_task_and_round_is_done_by_one_process(
    redis_url: str, keys: Keys, link: Link, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two control processes share the rounds, one a second, and never begin a task twice."""
    begun: list[float] = []
    every_second = Rounds.every_second

    def noted(self: Rounds) -> None:
        begun.append(time.monotonic())
        every_second(self)

    monkeypatch.setattr(Rounds, "every_second", noted)
    processes = [make_process("control", redis_url, keys, files_dir=files) for _ in range(2)]
    with _working(processes[0]), _working(processes[1]):
        for number in range(10):
            ask(link, _ingest(f"t{number}", job_id=f"job{number}"))
        wait_until(lambda: all(_found(link, f"t{number}").has_ended for number in range(10)))
        wait_until(lambda: len(begun) >= 5)

    # one more where a round that was due before was late
    assert len(begun) <= begun[-1] - begun[0] + 2
    tasks = [_found(link, f"t{number}") for number in range(10)]
    assert {("done", 1)} == {(task.state, task.num_runs) for task in tasks}


def test_a_task_that_redis_forgot_half_of_is_done(
    redis_url: str, keys: Keys, link: Link, files: Path, redis_client: Any
) -> None:
    """What arq knows of a task may be lost with a connection; it is offered again."""
    process = make_process("control", redis_url, keys, files_dir=files)
    # as if the connection had been lost between the two: known, and never queued
    redis_client.set(f"{keys.prefix}:arq:job:t1", b"", px=2000)
    ask(link, _ingest())
    with _working(process):
        wait_until(lambda: _found(link).has_ended)

    assert _found(link).state == "done"
