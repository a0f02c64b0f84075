"""The processes of a run: started from a warm parent, started again when they end.

Decides nothing about who is to die: it starts, notices ends and remembers them. A child is forked
from a server process that has imported the workers already (`multiprocessing`'s), so that a start
costs 20 ms rather than 400; that is what makes a thousand deaths affordable. May import
multiprocessing.
"""

import itertools
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.chaos.mortal import Fate, live
from workers.lifecycle import EXIT_LEFT

#: Imported once by the parent of all: what the workers import, and they themselves.
_WARM = (
    *("tests.chaos.mortal", "tests.chaos.customer", "tests.support.slow_engine_worker"),
    "tests.chaos.odd_engine",
    *("workers.preprocess_worker", "workers.engine_worker", "workers.control"),
    *("docmill.submission", "docmill.job", "docmill.progress", "docmill.intake.values"),
)
#: A child imports its starter's main module as well, where that is a script.
_MAIN = frozenset(("pytest",))


@dataclass(frozen=True, slots=True)
class Post:
    """A place in the crew: what runs there, and with which settings.

    `span`: its processes die by themselves after so many moments; None: they do not.
    """

    name: str
    module: str
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    span: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Member:
    """One process at a post."""

    post: Post
    process: ForkServerProcess
    log: Path
    is_frozen: bool = False
    is_asked: bool = False

    @property
    def pid(self) -> int:
        """The process' id."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def role(self) -> str:
        """The post's name without its number."""
        return self.post.name.partition("-")[0]

    def kill(self) -> None:
        """SIGKILL, from outside."""
        self.process.kill()

    def ask_to_stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM, as an operator does."""
        self.is_asked = True
        self._send(number)

    def freeze(self) -> None:
        """Stop it; it keeps everything and does nothing."""
        self.is_frozen = True
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.is_frozen = False
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self.process.is_alive():
            os.kill(self.pid, number)

    @property
    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def last(self) -> str:
        """The last line of its log."""
        return self.text.rstrip().rpartition("\n")[2] or "it said nothing"

    @property
    def is_gone_as_asked(self) -> bool:
        """Whether it ended because it was asked to: also before it could listen."""
        return self.is_asked and self.process.exitcode in (0, EXIT_LEFT, -signal.SIGTERM)

    @property
    def died(self) -> bool:
        """Whether it was killed, by itself or from outside."""
        return self.process.exitcode == -signal.SIGKILL


class Crew:
    """Processes at their posts.

    Args:
        folder: Logs, the obituaries and the truce go there.
        seed: What fates are drawn from.
    """

    def __init__(self, folder: Path, seed: str) -> None:
        self.members: list[Member] = []
        self.truce = folder / "truce"
        self.obituaries = folder / "obituaries"
        self._folder = folder
        self._seed = seed
        self._numbers = itertools.count()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_WARM, *_MAIN.intersection(sys.modules)])

    def start(self, post: Post) -> Member:
        """Start a process at a post."""
        number = next(self._numbers)
        log = self._folder / f"{post.name}.{number}.log"
        fate = None
        if post.span is not None:
            least, most = post.span
            seed = f"{self._seed}/{post.name}/{number}"
            fate = Fate(seed, least, most, self.truce, self.obituaries)
        process = self._context.Process(
            target=live,
            args=(post.module, post.arguments, dict(post.variables), log, fate),
            daemon=True,
        )
        process.start()
        member = Member(post, process, log)
        self.members.append(member)
        return member

    def ended(self, timeout_s: float) -> list[Member]:
        """Wait for processes to end, and take those that did off the list."""
        sentinels = {member.process.sentinel: member for member in self.members}
        ended = [sentinels[found] for found in wait(list(sentinels), timeout_s)]  # type: ignore[index]
        for member in ended:
            member.process.join()
            self.members.remove(member)
        return ended

    def at(self, *roles: str) -> list[Member]:
        """Return the living members of these roles."""
        return [member for member in self.members if member.role in roles]

    def disband(self) -> None:
        """End everybody."""
        for member in self.members:
            member.process.kill()
        for member in self.members:
            member.process.join()
        self.members.clear()


def pick(chance: random.Random, members: Sequence[Member]) -> Member | None:
    """Return one of them, or None of none."""
    return chance.choice(members) if members else None
