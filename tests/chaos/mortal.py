"""Runs a module as this process, and lets the process die between any two of its Redis commands.

The fault points are laid around redis-py's connections, so that the code under test holds none and
every command of every step is covered: the process may die before a command is sent, with half of
it sent (a pipeline carried out in part), after it was sent (carried out, the reply lost), and after
its reply was read. At which of these moments it dies is drawn from a seed. May import redis.
"""

import asyncio
import ctypes
import math
import os
import random
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis.asyncio.connection
import redis.connection
from redis.exceptions import ResponseError

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Fate:
    """When a process dies: after so many moments, drawn between `least` and `most`.

    Spread evenly by order of magnitude, so that the steps of a start are hit as well as those of a
    long life. While the file `truce` exists nobody dies. `obituaries` gets a line at each death.
    """

    seed: str
    least: int
    most: int
    truce: Path
    obituaries: Path


class Mortality:
    """Counts the moments at which this process could die, and ends it at the one drawn."""

    def __init__(
        self, fate: Fate, die: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    ) -> None:
        self._fate = fate
        self._random = random.Random(fate.seed)
        self._die = die
        self._lock = threading.Lock()
        self._left = self._draw()

    def _draw(self) -> int:
        ratio = self._fate.most / self._fate.least
        return round(self._fate.least * math.pow(ratio, self._random.random()))

    def passes(self, moment: str, command: bytes) -> None:
        """Live through a moment, or die at it."""
        if self.is_due():
            self.end(moment, command)

    def is_due(self) -> bool:
        """Count a moment; True at the one drawn, unless there is a truce."""
        with self._lock:
            self._left -= 1
            if self._left > 0:
                return False
            self._left = self._draw()
            return not self._fate.truce.exists()

    def cut(self, size: int) -> int:
        """Return where to cut `size` bytes."""
        return self._random.randint(1, max(1, size - 1))

    def end(self, moment: str, command: bytes) -> None:
        """Die, leaving a line that says where."""
        line = f"{os.getpid()} {moment} {name_of(command)}\n".encode()
        out = os.open(self._fate.obituaries, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(out, line)
        self._die()


def name_of(command: bytes) -> str:
    r"""Return the first word of a packed command: `*2\r\n$4\r\nPING…` is `PING`."""
    words = command[:64].split(b"\r\n")
    return words[2].decode("ascii", "replace").upper() if len(words) > 2 else "?"


def install(mortality: Mortality) -> None:
    """Lay the fault points around every connection that this process opens from now on."""
    _lay_around(redis.connection.AbstractConnection, mortality)
    _lay_around_asyncio(redis.asyncio.connection.AbstractConnection, mortality)


def _packed(command: Any) -> bytes:
    if isinstance(command, bytes):
        return command
    return command.encode() if isinstance(command, str) else b"".join(command)


def _lay_around(owner: Any, mortality: Mortality) -> None:
    send, read = owner.send_packed_command, owner.read_response
    last: dict[int, bytes] = {}

    def send_packed_command(self: Any, command: Any, check_health: bool = True) -> None:
        data = _packed(command)
        mortality.passes("before", data)
        if mortality.is_due():
            send(self, [data[: mortality.cut(len(data))]], check_health)
            mortality.end("in", data)
        send(self, [data], check_health)
        last[id(self)] = data[:64]
        mortality.passes("after", data)

    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            response = read(self, *args, **kwargs)
        except ResponseError:  # a reply, too
            mortality.passes("reply", last.get(id(self), b""))
            raise
        mortality.passes("reply", last.get(id(self), b""))
        return response

    owner.send_packed_command, owner.read_response = send_packed_command, read_response


def _lay_around_asyncio(owner: Any, mortality: Mortality) -> None:
    send, read = owner.send_packed_command, owner.read_response
    last: ContextVar[bytes] = ContextVar("last", default=b"")

    async def send_packed_command(self: Any, command: Any, check_health: bool = True) -> None:
        data = _packed(command)
        mortality.passes("before", data)
        if mortality.is_due():
            await send(self, [data[: mortality.cut(len(data))]], check_health)
            await asyncio.sleep(0)
            mortality.end("in", data)
        await send(self, [data], check_health)
        last.set(data[:64])
        mortality.passes("after", data)

    async def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            response = await read(self, *args, **kwargs)
        except ResponseError:  # a reply, too
            mortality.passes("reply", last.get())
            raise
        mortality.passes("reply", last.get())
        return response

    owner.send_packed_command, owner.read_response = send_packed_command, read_response


def live(
    module: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    log: Path,
    fate: Fate | None,
) -> None:
    """Be `python -m module arguments` with these environment variables; the log gets what it says.

    Meant for a child that was forked from a process which has imported the module already.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update(variables)  # noqa: TID251 - a child's own environment, as a shell sets it
    if fate is not None:
        install(Mortality(fate))
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # imported to be warm; it runs as the main module
    runpy.run_module(module, run_name="__main__", alter_sys=True)
