"""The storm: everything that may break breaks, while customers submit and read.

Decides what is injured when, from a seed, and when a round ends. Each round: injuries until enough
processes were killed, a truce, the audit. What a round proves: no accepted document was lost, none
has two results, nothing is left over, and the service answers. May import everything.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from docmill import Client
from docmill.connection import connect
from docmill.keys import Keys
from tests.chaos.audit import Audit, Verdict
from tests.chaos.crew import Crew, Member, Post
from tests.chaos.customer import EXIT_AGAIN
from tests.chaos.injuries import Ground, Injuries
from tests.chaos.piles import CONTEXT_LEN, DELIVERIES, Pile, Temper
from tests.chaos.scene import NAMESPACE
from tests.chaos.watch import Watch
from tests.support.proxy import running_proxy
from workers.redis_server import start_embedded

#: Moments (four to a command) after which a process dies by itself; see `mortal.Fate`.
_WORKER_SPAN, _CONTROL_SPAN, _CUSTOMER_SPAN = (15, 2000), (15, 12_000), (15, 10_000)
_NUM_CUSTOMERS = 3
_HEARTBEAT_TTL_S = 1.0
#: What it takes to give a silent worker's entries away: its heartbeat's lifetime, the reaper's
#: confirmation and a round of it.
_AWAY_S = 2.5 * _HEARTBEAT_TTL_S
#: How long all may take to end once nothing is injured any more.
_CALM_S, _SETTLE_S, _FRESH_S = 40.0, 20.0, 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How hard a run is. `every_s`: mean time between two injuries from outside."""

    seed: str
    num_kills: int
    temper: Temper = "mild"
    round_kills: int = 100
    pile_documents: int = 40
    every_s: float = 0.25


@dataclass(slots=True)
class Tally:
    """What was done and found in all rounds."""

    kills: Counter[str] = field(default_factory=Counter)
    injuries: Counter[str] = field(default_factory=Counter)
    left_s: list[float] = field(default_factory=list)
    fresh_s: list[float] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)

    def add(self, other: "Tally") -> None:
        """Add what another run did and found."""
        self.kills += other.kills
        self.injuries += other.injuries
        self.left_s += other.left_s
        self.fresh_s += other.fresh_s
        self.verdict.add(other.verdict)


class Storm:
    """One run over one Redis and one namespace.

    Args:
        plan: How hard it is.
        folder: A short path for logs and for Redis' data.
        say: Called with a line now and then.
    """

    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
        self.tally = Tally()
        self.plan = plan
        self._folder = folder
        self._say = say
        self._chance = random.Random(plan.seed)
        self._crew = Crew(folder, plan.seed)
        self._keys = Keys(NAMESPACE)
        self._piles: list[Pile] = []
        self._ground: Ground
        self._injuries: Injuries
        self._watch: Watch

    def run(self) -> Tally:
        """Run rounds until enough was killed or a promise was broken."""
        with ExitStack() as stack:
            server = start_embedded(self._folder / "redis")
            proxies = [stack.enter_context(running_proxy(server.url)) for _ in range(2)]
            self._ground = Ground(self._folder / "redis", server, proxies, self._crew, _AWAY_S)
            stack.callback(self._ground.stop_redis)
            stack.callback(self._crew.disband)
            self._injuries = Injuries(self._ground, self._chance)
            client = connect(server.url)
            self._watch = Watch(client, self._keys)
            audit = Audit(client, server.url, self._keys, self._folder)
            for post in self._posts():
                self._crew.start(post)
            while self.tally.verdict.is_clean and self._num_kills < self.plan.num_kills:
                self._round(audit)
            client.close()
        self.tally.kills["redis"] = self._injuries.num_redis_kills
        self.tally.injuries = self._injuries.num_struck
        self.tally.left_s = self._watch.times_s
        return self.tally

    @property
    def _num_kills(self) -> int:
        return self.tally.kills.total() + self._injuries.num_redis_kills

    def _posts(self) -> list[Post]:
        fake, slow = "workers.engine_worker", "tests.support.slow_engine_worker"
        near = self._variables(self._ground.server.url)
        far = self._variables(self._ground.proxies[0].url)
        return [
            Post("preprocess-1", "workers.preprocess_worker", (), near, _WORKER_SPAN),
            Post("preprocess-2", "workers.preprocess_worker", (), far, _WORKER_SPAN),
            Post("engine-1", fake, (), near, _WORKER_SPAN),
            Post("engine-2", slow, ("0.2",), far, _WORKER_SPAN),
            Post("control-1", "workers.control", (), near, _CONTROL_SPAN),
            Post("control-2", "workers.control", (), far, _CONTROL_SPAN),
        ]

    def _variables(self, url: str) -> Mapping[str, str]:
        return {
            "DOCMILL_REDIS_URL": url,
            "DOCMILL_NAMESPACE": NAMESPACE,
            "DOCMILL_ENGINE": "fake",
            "DOCMILL_MAX_CONTEXT_LEN": str(CONTEXT_LEN),
            "DOCMILL_HEARTBEAT_TTL_S": str(_HEARTBEAT_TTL_S),
            "DOCMILL_MAX_DELIVERIES": str(DELIVERIES[self.plan.temper]),
            "DOCMILL_MAX_ROWS": "8",
            "DOCMILL_MAX_WAIT_S": "0.01",
            "DOCMILL_GRACE_S": "2",
            "DOCMILL_BACKLOG_MAX_DOCS": "100",
            "DOCMILL_LOG_FORMAT": "json",
        }

    def _round(self, audit: Audit) -> None:
        first = len(self._piles)
        self._rage(min(self._num_kills + self.plan.round_kills, self.plan.num_kills))
        self._calm_down()
        if self.tally.verdict.is_clean:
            self._judge(audit, self._piles[first:])
        self._say(f"{self._num_kills} kills, {self.tally.verdict.num_documents} documents")

    def _rage(self, num_kills: int) -> None:
        """Injure until so many were killed in all, or somebody fell over by himself."""
        self._crew.truce.unlink(missing_ok=True)
        strike_at = time.monotonic()
        while self._num_kills < num_kills and self.tally.verdict.is_clean:
            if time.monotonic() >= strike_at:
                self._injuries.strike()
                strike_at += self._chance.expovariate(1 / self.plan.every_s)
            while len(self._crew.at("customer")) < _NUM_CUSTOMERS:
                self._send_customer()
            self._tend()

    def _judge(self, audit: Audit, piles: Sequence[Pile]) -> None:
        """Let all jobs end and all traces vanish, and compare what is there with what must be."""
        verdict = self.tally.verdict
        if not self._until(lambda: not self._crew.at("customer"), _CALM_S):
            waiting = [member.post.name for member in self._crew.at("customer")]
            verdict.faults.append(f"jobs that never end: {waiting}")
        elif not self._until(lambda: not audit.leftovers(self._pids()), _SETTLE_S):
            verdict.faults += audit.leftovers(self._pids())
        else:
            for pile in piles:
                audit.check(pile, datetime.now(UTC).timestamp(), verdict)
            self._ask_something_fresh()

    def _calm_down(self) -> None:
        self._crew.truce.touch()
        self._injuries.undo_due(everything=True)

    def _pids(self) -> set[int]:
        return {member.pid for member in self._crew.members}

    def _until(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        give_up_at = time.monotonic() + limit_s
        while not is_done():
            if time.monotonic() > give_up_at:
                return False
            self._tend(0.05)
        return True

    def _send_customer(self) -> None:
        plan = self.plan
        pile = Pile(plan.seed, len(self._piles), plan.pile_documents, plan.temper)
        self._piles.append(pile)
        url = self._ground.proxies[1].url if pile.number % 2 else self._ground.server.url
        told = (url, NAMESPACE, str(self._folder), *pile.arguments)
        name, module = f"customer-{pile.number}", "tests.chaos.customer"
        self._crew.start(Post(name, module, told, span=_CUSTOMER_SPAN))

    def _ask_something_fresh(self) -> None:
        """Submit one more document, and see that it is answered at once."""
        started = time.monotonic()
        with Client(self._ground.server.url, NAMESPACE) as client:
            texts = [f"fresh after {self._num_kills} kills of {self.plan.seed}"]
            job = client.submit(
                texts, prompt="Answer", max_tokens=32, tier="interactive", result_ttl=60
            )
            answers = [result.ok for result in job.results(timeout=_FRESH_S)]
        if answers != [True]:
            self.tally.verdict.faults.append(f"a fresh document was answered by {answers}")
        self.tally.fresh_s.append(time.monotonic() - started)

    def _tend(self, longest_s: float = 0.02) -> None:
        """Do what is due, and put somebody in the place of whoever has ended."""
        self._injuries.undo_due()
        self._watch.look()
        for member in self._crew.ended(longest_s):
            self._bury(member)

    def _bury(self, member: Member) -> None:
        status, is_customer = member.process.exitcode, member.role == "customer"
        if member.died:
            self.tally.kills[member.role] += 1
            self._watch.died(member.pid)
        elif not (member.is_gone_as_asked or (is_customer and status in (0, EXIT_AGAIN))):
            self.tally.verdict.faults.append(
                f"{member.log.name} ended with {status}: {member.last}"
            )
        if not is_customer or status in (EXIT_AGAIN, -signal.SIGKILL):
            self._crew.start(member.post)
