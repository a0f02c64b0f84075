"""How long the entries of a killed worker stay with the dead, at the default settings.

Once on an idle stream, where nobody's reading or writing hurries anything along, and once under
load, where all are busy. May import everything.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docmill import Client
from docmill.connection import connect
from docmill.keys import Keys
from tests.chaos.crew import Crew, Member, Post
from tests.chaos.piles import Pile
from tests.chaos.watch import Watch
from tests.support.wait import wait_until
from workers.redis_server import start_embedded

_NAMESPACE = "redelivery"
#: What a holder works on for as long as it lives.
_FOR_EVER_S = "600"
#: Mean time between two kills: they overlap, as they do when a machine dies.
_EVERY_S = 0.7
_PILE_DOCUMENTS = 4000


@dataclass(frozen=True, slots=True)
class Scene:
    """A shard at the default settings with its crew."""

    url: str
    folder: Path
    crew: Crew
    watch: Watch
    chance: random.Random

    def post(self, name: str, module: str, *arguments: str, **settings: str) -> Post:
        """Describe a process; `settings` differ from the defaults."""
        told = {"REDIS_URL": self.url, "NAMESPACE": _NAMESPACE, "ENGINE": "fake"} | settings
        return Post(name, module, arguments, _variables(told))

    def kill_each_so_often(self, victim: Callable[[], Member | None], num_kills: int) -> None:
        """Kill those who hold something until `num_kills` were followed to their end."""
        kill_at = time.monotonic()
        num_left = num_kills
        while num_left or not self.watch.is_idle:
            if num_left and time.monotonic() >= kill_at:
                member = victim()
                if member:
                    self._kill(member)
                    num_left -= 1
                    kill_at += self.chance.expovariate(1 / _EVERY_S)
            self.watch.look()
            self._replace(0.01)

    def _kill(self, member: Member) -> None:
        member.kill()
        member.process.join()
        self.watch.died(member.pid)

    def _replace(self, longest_s: float) -> None:
        for member in self.crew.ended(longest_s):
            if member.role != "holder" and not (member.role == "customer" and not member.died):
                self.crew.start(member.post)


def _variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"DOCMILL_{name}": value for name, value in settings.items()}


@contextmanager
def _scene(folder: Path, seed: str) -> Iterator[Scene]:
    folder.mkdir()
    server, crew = start_embedded(folder / "redis"), Crew(folder, seed)
    client = connect(server.url)
    try:
        watch = Watch(client, Keys(_NAMESPACE))
        scene = Scene(server.url, folder, crew, watch, random.Random(seed))
        crew.start(scene.post("control-1", "workers.control"))
        crew.start(scene.post("preprocess-1", "workers.preprocess_worker"))
        yield scene
    finally:
        client.close()
        crew.disband()
        server.stop()


def when_idle(folder: Path, seed: str, num_kills: int) -> list[float]:
    """Kill workers that each hold something on a stream where nothing else happens."""
    with _scene(folder, seed) as scene:
        module, settings = "tests.support.slow_engine_worker", {"MAX_ROWS": "1"}
        for number in range(num_kills):
            post = scene.post(f"holder-{number}", module, _FOR_EVER_S, **settings)
            scene.crew.start(post)
        # takes whatever is handed back, and keeps it
        scene.crew.start(scene.post("taker-1", module, _FOR_EVER_S, MAX_ROWS="1000"))
        texts = [f"{seed} {number}" for number in range(4 * num_kills)]
        with Client(scene.url, _NAMESPACE) as client:
            client.submit(texts, prompt="Answer")
        holders = scene.crew.at("holder")
        wait_until(
            lambda: all(scene.watch.num_held(member.pid) for member in holders),
            timeout_s=60,
            what="every holder holds something",
        )
        scene.kill_each_so_often(lambda: holders.pop() if holders else None, num_kills)
        return scene.watch.times_s


def under_load(folder: Path, seed: str, num_kills: int) -> list[float]:
    """Kill workers that are busy, among others that are, and replace them."""
    with _scene(folder, seed) as scene:
        for number in (1, 2):
            scene.crew.start(scene.post(f"engine-{number}", "workers.engine_worker"))
        scene.crew.start(scene.post("preprocess-2", "workers.preprocess_worker"))
        piles = (Pile(seed, 8 * number, _PILE_DOCUMENTS) for number in range(1000))

        def victim() -> Member | None:
            while len(scene.crew.at("customer")) < 2:
                pile = next(piles)
                told = (scene.url, _NAMESPACE, seed, str(pile.number), str(_PILE_DOCUMENTS))
                scene.crew.start(
                    scene.post(
                        f"customer-{pile.number}", "tests.chaos.customer", *told, str(folder)
                    )
                )
            busy = scene.crew.at("engine", "preprocess")
            busy = [member for member in busy if scene.watch.num_held(member.pid)]
            return scene.chance.choice(busy) if busy else None

        scene.kill_each_so_often(victim, num_kills)
        return scene.watch.times_s
