"""How long the entries of a killed worker stay with the dead, at the default settings.

Once on an idle stream, where nobody's reading or writing hurries anything along, and once under
load, where all are busy. May import everything.
"""

import random
import time
from collections.abc import Callable

from tests.chaos.crew import Member
from tests.chaos.piles import Pile
from tests.chaos.scene import NAMESPACE, Scene, scene
from tests.support.wait import wait_until

#: What a holder works on for as long as it lives.
_FOR_EVER_S = "600"
#: Mean time between two kills: they overlap, as they do when a machine dies.
_EVERY_S = 0.7
_PILE_DOCUMENTS = 4000


def when_idle(seed: str, num_kills: int) -> list[float]:
    """Kill workers that each hold something on a stream where nothing else happens."""
    with scene(seed) as stage:
        stage.start_service()
        for number in range(num_kills):
            stage.start(f"slow-{number}", _FOR_EVER_S, max_rows=1)
        # takes whatever is handed back, and keeps it
        stage.start("slow-taker", _FOR_EVER_S, max_rows=1000)
        with stage.docmill() as client:
            client.submit([f"{seed} {at}" for at in range(4 * num_kills)], prompt="Answer")
        holders = [one for one in stage.crew.at("slow") if one.post.name != "slow-taker"]
        wait_until(
            lambda: all(stage.watch.num_held(member.pid) for member in holders),
            timeout_s=60,
            what="every holder holds something",
        )
        _kill_each_so_often(stage, random.Random(seed), holders.pop, num_kills)
        return stage.watch.times_s


def under_load(seed: str, num_kills: int) -> list[float]:
    """Kill workers that are busy, among others that are, and replace them."""
    chance = random.Random(seed)
    with scene(seed) as stage:
        stage.start_service("engine-1", "engine-2", "preprocess-2")
        numbers = iter(range(0, 8 * 1000, 8))  # customers who neither cancel nor pause

        def victim() -> Member | None:
            while len(stage.crew.at("customer")) < 2:
                pile = Pile(seed, next(numbers), _PILE_DOCUMENTS)
                told = (stage.server.url, NAMESPACE, str(stage.folder), *pile.arguments)
                stage.start(f"customer-{pile.number}", *told)
            busy = stage.crew.at("engine", "preprocess")
            busy = [member for member in busy if stage.watch.num_held(member.pid)]
            return chance.choice(busy) if busy else None

        _kill_each_so_often(stage, chance, victim, num_kills)
        return stage.watch.times_s


def _kill_each_so_often(
    stage: Scene, chance: random.Random, victim: Callable[[], Member | None], num_kills: int
) -> None:
    """Kill victims until `num_kills` held something, and follow that until all of it has left."""
    kill_at, num_left = time.monotonic(), num_kills
    while num_left or not stage.watch.is_idle:
        if num_left and time.monotonic() >= kill_at:
            member = victim()
            if member:
                num_left -= _kill(stage, member)
                kill_at = time.monotonic() + chance.expovariate(1 / _EVERY_S)
        stage.watch.look()
        for member in stage.crew.ended(0.01):
            if member.role in ("engine", "preprocess"):
                stage.crew.start(member.post)


def _kill(stage: Scene, member: Member) -> int:
    """SIGKILL; 1 if it held something, else 0."""
    member.kill()
    member.process.join()
    return min(1, stage.watch.died(member.pid))
