"""The command line as a user runs it: real processes, their output, and signals to them.

May import the standard library and tests.support.wait.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.wait import wait_until

COMMAND = (sys.executable, "-m", "docmill.cli")

#: A model takes 10 s to load on two busy cores.
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str


def docmill(*arguments: str | Path, **environment: str) -> Finished:
    """Run `docmill` to its end."""
    ended = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        env=_environment(environment),
        check=False,
    )
    return Finished(ended.returncode, ended.stdout, ended.stderr)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}  # noqa: TID251 - as a shell would


class Running:
    """A command that still runs; its output goes to files, so that no pipe can fill."""

    def __init__(self, folder: Path, *arguments: str | Path, **environment: str) -> None:
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*COMMAND, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=_environment(environment),
            )

    def wait(self, timeout_s: float = 60.0) -> Finished:
        """Wait for its end."""
        status = self.process.wait(timeout_s)
        return Finished(status, self._stdout.read_text(), self._stderr.read_text())

    def events(self) -> list[dict[str, Any]]:
        """Return the whole lines of JSON that it has printed."""
        lines = self._stdout.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def wait_for_event(self, name: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until it has printed an event of that name.

        Raises:
            AssertionError: It ended, or did not in time; carries what it said.
        """

        def find() -> dict[str, Any] | None:
            found = [event for event in self.events() if event["event"] == name]
            assert found or self.process.poll() is None, self._stderr.read_text()
            return found[0] if found else None

        event = wait_until(find, timeout_s=timeout_s, what=f"the event {name}")
        assert event is not None
        return event

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Make sure that it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)


@contextlib.contextmanager
def running(folder: Path, *arguments: str | Path, **environment: str) -> Iterator[Running]:
    """Run `docmill` in the background until the block ends."""
    command = Running(folder, *arguments, **environment)
    try:
        yield command
    finally:
        command.end()


def descendants(pid: int) -> set[int]:
    """Return the processes that this one has started, and theirs (Linux)."""
    children: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children.update(int(child) for child in task.read_text().split())
    return children.union(*(descendants(child) for child in children))


def is_running(pid: int) -> bool:
    """Return whether there is such a process, zombies left out (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
