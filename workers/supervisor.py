"""Keeps child processes running: starts them, notices who is ready, restarts who crashed.

Decides when a crashed child is started again and when that is given up; knows neither Redis nor
models: who is ready is told to it. A child that exits with `EXIT_CONFIG` says that it can never
start, and one that dies several times without having been ready is taken at its word; being killed
while it starts says less about it, and counts less. Only ends processes that it started. May import
the standard library, workers.lifecycle and workers.relay.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from docmill.wire import Failure
from workers.lifecycle import EXIT_LEFT
from workers.log import EXIT_CONFIG
from workers.relay import LogRelay

#: The folder that holds docmill, workers and engine: what `python -m workers.…` needs to be in.
ROOT = Path(__file__).resolve().parents[1]
#: How long a pipe may stay open after its process has ended, because a grandchild holds it.
_DRAIN_LOG_S = 1.0

#: Ends that somebody else brings about, as far as can be told: the kernel's kill for want of memory
#: is among them. A worker that is asked to end while it starts does so with one of the first two.
_BY_OTHERS = (0, EXIT_LEFT, -signal.SIGTERM, -signal.SIGKILL)

#: Called with an event's name and what belongs to it.
Emit = Callable[..., None]


@dataclass(slots=True)
class Restarts:
    """When a child that ended is started again.

    The delay doubles from `base_s` up to `max_s` and starts over once the child has been up for
    `healthy_s`; it is jittered by half, so that several children do not start in step. It is given
    up after `max_failed_starts` in a row that it ended itself, or `max_ended_starts` of any kind:
    half a minute of killing, at least.
    """

    max_failed_starts: int = 3
    max_ended_starts: int = 8
    base_s: float = 0.5
    max_s: float = 30.0
    healthy_s: float = 60.0
    random: Callable[[], float] = random.random
    _crashes: int = field(default=0, init=False)
    _failed_starts: int = field(default=0, init=False)
    #: Starts in a row that ended before the child was ready, whoever ended them.
    ended_starts: int = field(default=0, init=False)

    def after_exit(self, *, was_ready: bool, up_s: float, by_others: bool = False) -> float | None:
        """Return the seconds to wait before the next start, or None to give up."""
        if was_ready:
            self._failed_starts = self.ended_starts = 0
        else:
            self._failed_starts += not by_others
            self.ended_starts += 1
        if (
            self._failed_starts >= self.max_failed_starts
            or self.ended_starts >= self.max_ended_starts
        ):
            return None
        self._crashes = 1 if was_ready and up_s >= self.healthy_s else self._crashes + 1
        delay = min(self.max_s, self.base_s * 2.0 ** (self._crashes - 1))
        return delay * (0.5 + self.random() / 2)


@dataclass(frozen=True, slots=True)
class Command:
    """A child to run: the role it is known by, the module, its arguments and own variables."""

    role: str
    module: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def argv(self) -> list[str]:
        """Return the command line; the child ends with this process."""
        return [sys.executable, "-m", "workers.tether", self.module, *self.arguments]


class Child:
    """One running process. Its log is relayed by a thread until the pipe closes."""

    def __init__(self, command: Command, env: Mapping[str, str], relay: LogRelay) -> None:
        self.relay = relay
        self.started_at = time.monotonic()
        self.is_ready = False
        self.process = subprocess.Popen(
            command.argv(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**env, **command.variables},
            process_group=0,  # a terminal's Ctrl-C is the supervisor's to pass on
        )
        self._reader = threading.Thread(target=self._relay_log, daemon=True)
        self._reader.start()

    def _relay_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.relay.feed(line)

    def status(self) -> int | None:
        """Return the exit status, its log relayed to the end; None while it runs."""
        status = self.process.poll()
        if status is not None:
            self._reader.join(_DRAIN_LOG_S)
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; none to a process that has ended."""
        self.process.send_signal(number)

    def release(self) -> None:
        """Close the pipes of a child that has ended."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        if not self._reader.is_alive():  # a grandchild's pipe is left to the reading thread
            self.process.stderr.close()


class Supervisor:
    """Runs one process per command until told to stop.

    Call `start` once, then `tick` a few times a second from the same thread, then `stop`.
    """

    def __init__(
        self,
        commands: Iterable[Command],
        env: Mapping[str, str],
        *,
        emit: Emit,
        log: BinaryIO,
        is_console: bool = False,
        restarts: Callable[[], Restarts] = Restarts,
    ) -> None:
        self._commands = {command.role: command for command in commands}
        self._restarts = {role: restarts() for role in self._commands}
        self._env = env
        self._emit = emit
        self._log = log
        self._is_console = is_console
        self._children: dict[str, Child] = {}
        self._start_at: dict[str, float] = {}
        #: Whether all children have been ready at once.
        self.was_announced = False

    def start(self) -> None:
        """Start every child. Does not wait until they are ready."""
        for role in self._commands:
            self._start(role)

    def _start(self, role: str) -> None:
        self._start_at.pop(role, None)
        relay = LogRelay(self._log, is_console=self._is_console)
        self._children[role] = Child(self._commands[role], self._env, relay)

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run now, by role."""
        return {role: child.process.pid for role, child in self._children.items()}

    def tick(self, ready_pids: Collection[int], now: float) -> Failure | None:
        """Look after the children once.

        Args:
            ready_pids: Processes that say that they are ready.
            now: Monotonic seconds.

        Returns:
            Why the service cannot run, or None. After a failure only `stop` may be called.
        """
        for role, child in list(self._children.items()):
            if (status := child.status()) is not None:
                if failure := self._on_exit(role, child, status, now):
                    return failure
            elif not child.is_ready and child.process.pid in ready_pids:
                child.is_ready = True
                self._emit("child_ready", role=role)
        for role in [role for role, at in self._start_at.items() if at <= now]:
            self._start(role)
        self._announce()
        return None

    @property
    def has_unready(self) -> bool:
        """Whether it matters to `tick` who is ready."""
        return bool(self.unready)

    @property
    def unready(self) -> list[str]:
        """The roles that are not ready, or wait to be started again."""
        ready = {role for role, child in self._children.items() if child.is_ready}
        return [role for role in self._commands if role not in ready]

    def _announce(self) -> None:
        if not self.has_unready and not self.was_announced:
            self.was_announced = True
            self._emit("ready")

    def _on_exit(self, role: str, child: Child, status: int, now: float) -> Failure | None:
        del self._children[role]
        child.release()
        if status == EXIT_CONFIG:
            return _failure(
                child, f"the {role} process cannot start: it ended with status {status}"
            )
        restarts = self._restarts[role]
        delay = restarts.after_exit(
            was_ready=child.is_ready,
            up_s=now - child.started_at,
            by_others=status in _BY_OTHERS,
        )
        if delay is None:
            starts = f"{restarts.ended_starts} starts in a row ended before it was ready"
            why = f"the {role} process was given up: {starts}, the last with {explained(status)}"
            return _failure(child, why)
        self._start_at[role] = now + delay
        self._emit("child_exited", role=role, how=ending(status), restart_in_s=round(delay, 2))
        return None

    def stop(self, grace_s: float, wait: Callable[[float], bool]) -> None:
        """End all children: asked first, killed when the grace period or patience is over.

        Args:
            grace_s: How long they may finish what they run.
            wait: Sleeps for the given seconds; returns True to stop waiting at once.
        """
        self._start_at.clear()
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while any(child.status() is None for child in self._children.values()):
            if time.monotonic() >= deadline or wait(0.05):
                self._signal(signal.SIGKILL)
                break
        for child in self._children.values():
            child.process.wait()
            child.status()
            child.release()
        self._children.clear()

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children.values():
            child.signal(number)


def _failure(child: Child, why: str) -> Failure:
    """Return why a child is not started again: in its own words, if it found any."""
    said = child.relay.last_words() or "it wrote no reason; see its last lines in the log"
    return child.relay.failure or Failure(code="process_crashed", message=f"{why}: {said}")


def ending(status: int) -> str:
    """Return how a process ended, for people."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def explained(status: int) -> str:
    """Return the same with what it may mean, where that is not for everyone to know."""
    if status == -signal.SIGKILL:
        return "SIGKILL (somebody's, or the kernel's when memory is short: see its log, `dmesg`)"
    return ending(status)
