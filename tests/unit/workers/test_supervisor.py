"""The supervisor, driven with small real child processes."""

import errno
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docmill.wire import Failure
from tests.support.wait import wait_until
from workers.relay import LogRelay
from workers.supervisor import Command, Restarts, Supervisor

READY = "import time, pathlib, sys; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"


class Stage:
    """A supervisor over scripts written for one test, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.log = io.BytesIO()

    def build(self, *programs: str) -> Supervisor:
        """Return a supervisor with one child per program, in roles r0, r1 and so on."""
        commands = []
        for number, program in enumerate(programs):
            (self.folder / f"child_{number}.py").write_text(program)
            marker = str(self.folder / f"up_{number}")
            commands.append(Command(f"r{number}", f"child_{number}", (marker,)))
        return Supervisor(
            commands,
            {**os.environ, "PYTHONPATH": str(self.folder)},  # noqa: TID251
            emit=lambda event, **fields: self.events.append((event, fields)),
            log=self.log,
            restarts=lambda: Restarts(base_s=0.01, random=lambda: 1.0),
        )

    def names(self) -> list[str]:
        """Return the events said so far."""
        return [name for name, _ in self.events]

    def is_up(self, number: int) -> bool:
        """Return whether the child has run its first line."""
        return (self.folder / f"up_{number}").exists()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A folder for scripts."""
    return Stage(tmp_path)


def _never(timeout_s: float) -> bool:
    time.sleep(timeout_s)
    return False


def _tick_until_failure(supervisor: Supervisor) -> Failure:
    failure = wait_until(lambda: supervisor.tick([], time.monotonic()), what="a failure")
    assert failure is not None
    return failure


def test_ready_is_said_once_all_children_are(stage: Stage) -> None:
    """Each child is announced when it is ready, and the whole after the last one."""
    supervisor = stage.build(READY, READY)
    supervisor.start()
    try:
        pids = supervisor.pids
        supervisor.tick([pids["r0"]], time.monotonic())

        assert stage.events == [("child_ready", {"role": "r0"})]
        assert supervisor.unready == ["r1"]

        supervisor.tick(list(pids.values()), time.monotonic())
        supervisor.tick(list(pids.values()), time.monotonic())

        assert stage.names() == ["child_ready", "child_ready", "ready"]
    finally:
        supervisor.stop(0, _never)


def test_a_crashed_child_is_started_again(stage: Stage) -> None:
    """A child that was ready and died runs again under a new process, and is announced again."""
    supervisor = stage.build(READY)
    supervisor.start()
    try:
        first = supervisor.pids["r0"]
        supervisor.tick([first], time.monotonic())
        os.kill(first, 9)
        second = wait_until(lambda: _replaced(supervisor, first), what="a second process")
        assert second is not None
        supervisor.tick([second], time.monotonic())

        assert stage.names() == ["child_ready", "ready", "child_exited", "child_ready"]
        assert stage.events[2][1] == {"role": "r0", "how": "SIGKILL", "restart_in_s": 0.01}
    finally:
        supervisor.stop(0, _never)


def _replaced(supervisor: Supervisor, old: int) -> int | None:
    assert supervisor.tick([], time.monotonic()) is None
    pid = supervisor.pids.get("r0")
    return None if pid == old else pid


def test_a_child_that_cannot_start_gives_its_own_reason(stage: Stage) -> None:
    """Exit status 78 is final, and the failure is the one that the child logged."""
    supervisor = stage.build(
        """import sys
print('{"event": "process.failed", "code": "model_load_error", "message": "no such model: x"}',
      file=sys.stderr)
sys.exit(78)"""
    )
    supervisor.start()
    failure = _tick_until_failure(supervisor)
    supervisor.stop(0, _never)

    assert failure == Failure(code="model_load_error", message="no such model: x")
    assert stage.events == []


def test_a_child_that_never_gets_ready_is_given_up(stage: Stage) -> None:
    """Three crashes before readiness end it; the message carries the error's own line."""
    supervisor = stage.build("raise RuntimeError('no disk')")
    supervisor.start()
    failure = _tick_until_failure(supervisor)
    supervisor.stop(0, _never)

    assert failure.code == "process_crashed"
    assert failure.message == (
        "the r0 process was given up: 3 starts in a row ended before it was ready, "
        "the last with status 1: RuntimeError: no disk"
    )
    assert stage.names() == ["child_exited", "child_exited"]


def test_a_child_that_is_killed_while_it_starts_gets_more_tries(stage: Stage) -> None:
    """Five quick kills while it loads are survived; in the end it is given up."""
    supervisor = stage.build("import os; os.kill(os.getpid(), 9)")
    supervisor.start()
    failure = _tick_until_failure(supervisor)
    supervisor.stop(0, _never)

    assert stage.names() == ["child_exited"] * 7
    assert "8 starts in a row ended before it was ready, the last with SIGKILL" in failure.message
    assert failure.message.endswith("it wrote no reason; see its last lines in the log")


def test_stop_lets_children_finish(stage: Stage) -> None:
    """Children get SIGTERM and their grace; the log they write then still arrives."""
    supervisor = stage.build(
        """import pathlib, signal, sys, time
def finish(*_):
    print("finished", file=sys.stderr)
    sys.exit(0)
signal.signal(signal.SIGTERM, finish)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)"""
    )
    supervisor.start()
    wait_until(lambda: stage.is_up(0))
    supervisor.stop(10.0, _never)

    assert b"finished" in stage.log.getvalue()


@pytest.mark.parametrize(
    ("grace_s", "wait"), [(0.1, _never), (60.0, lambda timeout_s: True)], ids=["grace", "hurry"]
)
def test_stop_does_not_wait_for_ever(
    stage: Stage, grace_s: float, wait: Callable[[float], bool]
) -> None:
    """A child that ignores SIGTERM is killed when the grace or the caller's patience is over."""
    supervisor = stage.build(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
    )
    supervisor.start()
    wait_until(lambda: stage.is_up(0))
    began_at = time.monotonic()
    supervisor.stop(grace_s, wait)

    assert time.monotonic() - began_at < 5.0
    assert supervisor.pids == {}


def test_a_child_ends_with_its_parent(stage: Stage) -> None:
    """A child whose parent's end of the lead closes is gone, however the parent died."""
    supervisor = stage.build(READY)
    supervisor.start()
    wait_until(lambda: stage.is_up(0))
    child = supervisor._children["r0"]
    assert child.process.stdin is not None
    child.process.stdin.close()
    try:
        wait_until(lambda: child.process.poll() is not None, what="the child ends")
    finally:
        supervisor.stop(0, _never)


def test_the_delay_doubles_and_starts_over() -> None:
    """Crashes of a ready child wait longer each time; a long healthy run forgets them."""
    restarts = Restarts(base_s=1.0, max_s=5.0, healthy_s=60.0, random=lambda: 1.0)
    delays = [restarts.after_exit(was_ready=True, up_s=1.0) for _ in range(4)]

    assert delays == [1.0, 2.0, 4.0, 5.0]
    assert restarts.after_exit(was_ready=True, up_s=100.0) == 1.0


def test_the_delay_is_jittered_downwards() -> None:
    """The jitter takes up to half of the delay."""
    low = Restarts(base_s=1.0, random=lambda: 0.0)

    assert low.after_exit(was_ready=True, up_s=0.0) == 0.5


def test_crashes_of_a_ready_child_never_end_the_service() -> None:
    """Documents that kill their worker are the dead letters' business, not the supervisor's."""
    restarts = Restarts()

    assert all(restarts.after_exit(was_ready=True, up_s=0.1) for _ in range(20))


def test_readiness_forgives_failed_starts() -> None:
    """Two failed starts before and after a good one are not three in a row."""
    restarts = Restarts(max_failed_starts=3)
    verdicts = [
        restarts.after_exit(was_ready=was_ready, up_s=0.1) is not None
        for was_ready in (False, False, True, False, False, False)
    ]

    assert verdicts == [True, True, True, True, True, False]


def test_a_full_disk_stops_no_child() -> None:
    """Lines that cannot be written are lost; those that come later are not."""

    class Disk(io.BytesIO):
        is_full = True

        def flush(self) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "no space left")

    disk = Disk()
    relay = LogRelay(disk, is_console=False)
    relay.feed(b"lost\n")
    disk.is_full = False
    relay.feed(b"kept\n")

    assert disk.getvalue().endswith(b"kept\n")


def test_logs_pass_unchanged_unless_a_person_reads_them() -> None:
    """JSON lines reach a program as they are and a terminal rendered."""
    line = b'{"event": "batch.formed", "level": "info", "rows": 3}\n'
    plain, shown = io.BytesIO(), io.BytesIO()
    LogRelay(plain, is_console=False).feed(line)
    LogRelay(shown, is_console=True).feed(line)

    assert plain.getvalue() == line
    assert b"batch.formed" in shown.getvalue()
    assert b"{" not in shown.getvalue()
