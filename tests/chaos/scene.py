"""A shard with its processes, for tests that say exactly what goes wrong.

Decides nothing. May import the crew, docmill and the embedded Redis.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docmill import Client
from docmill.connection import connect
from docmill.keys import Keys
from tests.chaos.crew import Crew, Member, Post
from tests.chaos.watch import Watch
from tests.support.wait import wait_until
from workers.redis_server import RedisServer, start_embedded

NAMESPACE = "chaos"
#: The modules behind the roles.
_MODULES = {
    "preprocess": "workers.preprocess_worker",
    "engine": "workers.engine_worker",
    "control": "workers.control",
    "slow": "tests.support.slow_engine_worker",
    "odd": "tests.chaos.odd_engine",
    "customer": "tests.chaos.customer",
}


@dataclass(slots=True)
class Scene:
    """One Redis, one namespace, and whoever was started on it.

    `settings`: of every process, beside the address and the fake engine.
    """

    folder: Path
    server: RedisServer
    client: Any
    crew: Crew
    watch: Watch
    settings: dict[str, str]
    keys: Keys = field(default_factory=lambda: Keys(NAMESPACE))

    def post(
        self, name: str, *arguments: str, span: tuple[int, int] | None = None, **settings: object
    ) -> Post:
        """Describe a process, `<role>-<number>`; `settings` differ from the scene's."""
        told = {"redis_url": self.server.url, "namespace": NAMESPACE, "engine": "fake"}
        told |= self.settings | {key: str(value) for key, value in settings.items()}
        variables = {f"DOCMILL_{key.upper()}": value for key, value in told.items()}
        return Post(name, _MODULES[name.partition("-")[0]], arguments, variables, span)

    def start(self, name: str, *arguments: str, **settings: Any) -> Member:
        """Start a process; see `post`."""
        return self.crew.start(self.post(name, *arguments, **settings))

    def start_service(self, *engines: str, **settings: Any) -> list[Member]:
        """Start control, preprocessing and these engines, and wait until all are ready."""
        members = [self.start(name, **settings) for name in ("control-1", "preprocess-1", *engines)]
        self.wait_until_ready(*members)
        return members

    def wait_until_ready(self, *members: Member) -> None:
        """Wait until these processes show themselves as ready."""
        for member in members:
            wait_until(
                lambda member=member: b'"ready"' in self.shown(member),  # type: ignore[misc]
                timeout_s=30,
                what=f"{member.post.name} is ready",
            )

    def shown(self, member: Member) -> bytes:
        """Return what a process shows of itself; nothing when it is not on the list."""
        mark = f"-{member.pid}-".encode()
        rows = self.client.hgetall(self.keys.consumers).items()
        return next((bytes(shown) for name, shown in rows if mark in name), b"")

    def docmill(self, **options: Any) -> Client:
        """Return a client of the service."""
        return Client(self.server.url, NAMESPACE, **options)

    def num_pending(self) -> int:
        """Return how many entries are delivered and not done."""
        return sum(
            group["pending"]
            for stream in self.watch.streams()
            for group in self.client.xinfo_groups(stream)
        )

    def consumers(self) -> set[str]:
        """Return the consumers that the ready streams' groups know."""
        return {
            one["name"].decode()
            for stream in self.watch.streams()
            if b":ready:" in stream
            for one in self.client.xinfo_consumers(stream, "workers")
        }

    def restart_redis(self, *, keeps_data: bool = True) -> None:
        """SIGKILL the server and start it again in the same place, with its data or without."""
        folder = self.server.socket_path.parent
        self.server.process.kill()
        self.server.process.wait()
        if not keeps_data:
            shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
        self.server = start_embedded(folder)

    def said(self, member: Member) -> list[str]:
        """Return the lines that a process has logged."""
        return member.text.splitlines()


@contextmanager
def scene(seed: str = "", **settings: object) -> Iterator[Scene]:
    """Set a scene until the block ends, with these settings for every process."""
    # not pytest's folder: its long names do not fit into a socket path
    folder = Path(tempfile.mkdtemp(prefix="dm-chaos-"))
    server, crew = start_embedded(folder / "redis"), Crew(folder, seed)
    client = connect(server.url)
    told = {"log_format": "json"} | {key: str(value) for key, value in settings.items()}
    set_up = Scene(folder, server, client, crew, Watch(client, Keys(NAMESPACE)), told)
    try:
        yield set_up
    finally:
        client.close()
        crew.disband()
        set_up.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def ends_within(member: Member, limit_s: float) -> float:
    """Wait until a process has ended, and return the seconds it took.

    Raises:
        AssertionError: It had not within `limit_s`.
    """
    started = time.monotonic()
    member.process.join(limit_s)
    assert not member.process.is_alive(), f"{member.post.name} still runs"
    return time.monotonic() - started
