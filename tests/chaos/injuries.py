"""What is done to a service from outside, and undone in time.

Decides which injury comes next, from a seed; `Storm` says for how long. May import the crew, the
proxy and the embedded Redis.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmill.connection import connect
from docmill.keys import GROUP
from tests.chaos.crew import Crew, Member
from tests.support.proxy import Proxy
from workers.redis_server import RedisServer, start_embedded

#: Streams that workers share.
_SHARED = re.compile(rb"\}:(intake|ready):")


@dataclass(slots=True)
class Ground:
    """What a service stands on: its Redis, the ways to it, and its processes.

    `away_s`: silence after which a worker's entries have been given away.
    """

    folder: Path
    server: RedisServer
    proxies: list[Proxy]
    crew: Crew
    away_s: float

    def restart_redis(self) -> None:
        """SIGKILL Redis, and start it again on what it has written."""
        self.server.process.kill()
        self.server.process.wait()
        self.server = start_embedded(self.folder)

    def stop_redis(self) -> None:
        """End Redis in order."""
        self.server.stop()


class Injuries:
    """Strikes one after the other.

    Args:
        ground: What is struck.
        chance: Decides what comes next, and whom it hits.
    """

    def __init__(self, ground: Ground, chance: random.Random) -> None:
        self.num_struck: Counter[str] = Counter()
        self.num_redis_kills = 0
        self._ground = ground
        self._chance = chance
        self._undo: list[tuple[float, Callable[[], object]]] = []
        self._kinds: dict[Callable[[], None], float] = {
            self._kill: 6.0,
            self._freeze: 1.0,
            self._stop: 0.5,
            self._kill_redis: 0.3,
            self._cut: 1.0,
            self._lose_replies: 1.0,
            self._stall: 0.3,
            self._take_memory: 0.3,
            self._forget_scripts: 0.3,
            self._end_connections: 0.5,
            self._destroy_groups: 0.2,
        }

    def strike(self) -> None:
        """Do something bad."""
        (injure,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
        self.num_struck[injure.__name__.strip("_")] += 1
        injure()

    def undo_due(self, *, everything: bool = False) -> None:
        """Undo what has lasted for long enough."""
        now = time.monotonic()
        due = [item for item in self._undo if everything or item[0] <= now]
        self._undo = [item for item in self._undo if item not in due]
        for _, undo in due:
            undo()

    def _lasts(self, seconds: float, undo: Callable[[], object]) -> None:
        self._undo.append((time.monotonic() + seconds, undo))

    def _pick(self, *roles: str) -> Member | None:
        awake = [member for member in self._ground.crew.at(*roles) if not member.is_frozen]
        return self._chance.choice(awake) if awake else None

    def _kill(self) -> None:
        (role,) = self._chance.choices(
            ("preprocess", "engine", "control", "customer"), (4, 4, 2, 1)
        )
        member = self._pick(role)
        if member:
            member.kill()

    def _freeze(self) -> None:
        """Stop a worker until its entries were given away; then it wakes up and is too late."""
        member = self._pick("preprocess", "engine", "control")
        if member:
            member.freeze()
            self._lasts(self._ground.away_s * self._chance.uniform(0.5, 1.5), member.thaw)

    def _stop(self) -> None:
        """Ask a worker to end, as an operator does."""
        member = self._pick("preprocess", "engine", "control")
        if member and not member.is_asked:  # the second signal would end it at once
            member.ask_to_stop()

    def _kill_redis(self) -> None:
        self._ground.restart_redis()
        self.num_redis_kills += 1

    def _cut(self) -> None:
        self._chance.choice(self._ground.proxies).cut()

    def _lose_replies(self) -> None:
        proxy = self._chance.choice(self._ground.proxies)
        proxy.lose_replies(self._chance.randint(1, 3), to=self._chance.choice([b"EVALSHA", b"X"]))

    def _stall(self) -> None:
        """Let nothing through for so long that those behind are taken for dead."""
        proxy = self._chance.choice(self._ground.proxies)
        proxy.flows.clear()
        self._lasts(self._ground.away_s * self._chance.uniform(0.3, 1.2), proxy.flows.set)

    def _take_memory(self) -> None:
        """Let Redis refuse what needs memory, for a while."""
        self._tell_redis("CONFIG SET", "maxmemory", 1)
        self._lasts(
            self._chance.uniform(0.2, 2.0), lambda: self._tell_redis("CONFIG SET", "maxmemory", 0)
        )

    def _forget_scripts(self) -> None:
        self._tell_redis("SCRIPT FLUSH")

    def _end_connections(self) -> None:
        """End everybody's connection from Redis' side, as it does with those it finds too slow."""
        self._tell_redis("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")

    def _destroy_groups(self) -> None:
        """Take a stream's group away: whatever was delivered from it is delivered again."""
        with connect(self._ground.server.url) as client:
            streams = [key for key in client.scan_iter(count=1000) if _SHARED.search(key)]
            if streams:
                client.xgroup_destroy(self._chance.choice(sorted(streams)), GROUP)

    def _tell_redis(self, *command: Any) -> None:
        with connect(self._ground.server.url) as client:
            client.execute_command(*command)
