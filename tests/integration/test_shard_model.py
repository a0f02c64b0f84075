"""One shard, driven at random through every script and compared with its model after each step.

In the suite the search is short and always the same. To search further, with other steps each time:
`python -m tests.integration.test_shard_model [number of examples]`.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from docmill.keys import TIERS
from tests.support.redis_server import running_redis
from tests.support.shard_driver import INTAKES, READIES, WORKERS, Driver
from tests.support.shard_records import Ticket

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

job_ids = st.sampled_from(["j0", "j1"])
custom_ids = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4)
consumers = st.sampled_from(WORKERS)
tiers = st.sampled_from(TIERS)
fingerprints = st.sampled_from(["", "f1", "f2"])
#: What may befall a whole job; the more often named, the more often it does.
FATES = ("open", "seal", "pause", "pause", "resume", "reject", "abandon", "cancel", "expire")
outcomes = st.sampled_from(["succeeded", "succeeded", "expired", "cancelled"])
pick = st.integers(0, 5)
picks = st.lists(pick, min_size=1, max_size=4)


def four(each: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """Return as many as the most that `picks` names."""
    return st.lists(each, min_size=4, max_size=4)


def some(things: Sequence[T], numbers: Sequence[int]) -> list[T]:
    """Return the things of these numbers, one perhaps twice."""
    return [things[number % len(things)] for number in numbers]


def when(condition: Callable[[Driver], object]) -> Callable[[F], F]:
    """Allow a rule only then."""

    def allow(rule: F) -> F:
        allowed: F = precondition(lambda machine: bool(condition(machine.shard)))(rule)
        return allowed

    return allow


class ShardMachine(RuleBasedStateMachine):
    """Does what clients, workers, reapers and operators do; late, twice and at once."""

    client: Any
    shard: Driver

    @initialize(max_docs=st.sampled_from([1000, 5]), ids=custom_ids, tier=tiers)
    def start(self, max_docs: int, ids: list[str], tier: str) -> None:
        """Start with something to work on."""
        self.shard = Driver(self.client, max_docs)
        for job_id in ("j0", "j1"):
            self.shard.open(job_id)
            self.shard.submit(job_id, tier, ids, False)

    # clients

    @rule(job_id=job_ids, tier=tiers, ids=custom_ids, has_deadline=st.booleans())
    def submit(self, job_id: str, tier: str, ids: list[str], has_deadline: bool) -> None:
        """Submit documents, some of them again."""
        self.shard.submit(job_id, tier, ids, has_deadline)

    @rule(job_id=job_ids, how=st.sampled_from(FATES))
    def steer(self, job_id: str, how: str) -> None:
        """Decide on a whole job."""
        getattr(self.shard, how)(job_id)

    @rule(job_id=job_ids, ids=custom_ids)
    def cancel_singly(self, job_id: str, ids: list[str]) -> None:
        """Cancel some documents of a job."""
        self.shard.cancel(job_id, ids)

    # workers

    @when(lambda shard: any(map(shard.model.waiting, INTAKES)))
    @rule(consumer=consumers, number=pick, count=st.integers(1, 4))
    def read_intake(self, consumer: str, number: int, count: int) -> None:
        """Let a consumer read submitted documents."""
        names = [name for name in INTAKES if self.shard.model.waiting(name)]
        self.shard.deliver(consumer, names[number % len(names)], count)

    @when(lambda shard: any(map(shard.model.waiting, READIES)))
    @rule(consumer=consumers, number=pick, count=st.integers(1, 4))
    def read_ready(self, consumer: str, number: int, count: int) -> None:
        """Let a consumer read prepared documents."""
        names = [name for name in READIES if self.shard.model.waiting(name)]
        self.shard.deliver(consumer, names[number % len(names)], count)

    @when(lambda shard: any(map(shard.model.waiting, INTAKES)))
    @rule(consumer=consumers, fps=four(fingerprints))
    def bring_on(self, consumer: str, fps: list[str]) -> None:
        """Read submitted documents and make them ready."""
        for name in INTAKES:
            self.shard.deliver(consumer, name, 2)
        self.shard.prepare(consumer, self.shard.held("intake", consumer)[-4:], fps)

    @when(lambda shard: any(map(shard.model.waiting, READIES)))
    @rule(consumer=consumers)
    def take_up(self, consumer: str) -> None:
        """Read prepared documents and start them."""
        for name in READIES:
            self.shard.deliver(consumer, name, 2)
        self.shard.begin(consumer, self.shard.held("ready", consumer)[-4:])

    def chosen(self, kind: str, numbers: Sequence[int]) -> tuple[str, list[Ticket]]:
        """Choose a consumer that holds something, and what it names: perhaps one thing too many."""
        consumer = some(self.shard.held(kind), numbers)[0].consumer
        held = self.shard.held(kind, consumer)
        others = [
            one
            for one in self.shard.tickets[-20:]
            if one.stream.startswith(kind) and one not in held
        ]
        return consumer, some(held[:5] + others[-1:], numbers)

    @when(lambda shard: shard.held("intake"))
    @rule(numbers=picks, fps=four(fingerprints | st.none()))
    def prepare(self, numbers: list[int], fps: list[str | None]) -> None:
        """Make documents ready, or refuse them."""
        self.shard.prepare(*self.chosen("intake", numbers), fps)

    @when(lambda shard: shard.held("ready"))
    @rule(numbers=picks)
    def begin(self, numbers: list[int]) -> None:
        """Start documents."""
        self.shard.begin(*self.chosen("ready", numbers))

    @when(lambda shard: shard.held("ready"))
    @rule(numbers=picks, ends=four(outcomes), is_cached=st.booleans())
    def complete(self, numbers: list[int], ends: list[str], is_cached: bool) -> None:
        """End documents, also such as had not begun."""
        self.shard.complete(*self.chosen("ready", numbers), ends, is_cached)

    @when(lambda shard: shard.held())
    @rule(number=pick)
    def bury(self, number: int) -> None:
        """Give a document up."""
        consumer, (ticket,) = self.chosen("", [number])
        self.shard.bury(consumer, ticket)

    @when(lambda shard: shard.held())
    @rule(number=pick, counted=st.booleans(), is_later=st.booleans())
    def hand_back(self, number: int, counted: bool, is_later: bool) -> None:
        """Hand back what one holds, for now or for later."""
        consumer, (ticket,) = self.chosen("", [number])
        self.shard.hand_back(consumer, ticket, counted=counted, is_later=is_later)

    @when(lambda shard: len(shard.tickets) > len(shard.held()))
    @rule(number=pick, how=st.sampled_from(["begin", "complete", "prepare", "bury", "hand_back"]))
    def come_late(self, number: int, how: str) -> None:
        """Go on with what was taken away meanwhile, as a worker does that was frozen."""
        kind = {"prepare": "intake", "begin": "ready", "complete": "ready"}.get(how, "")
        held = self.shard.held()
        late = [one for one in self.shard.tickets if one not in held]
        for one in some(late, [number]):
            if one.stream.startswith(kind):
                several = how in ("begin", "complete", "prepare")
                last = {"complete": [["succeeded"]], "prepare": [["f1"]]}.get(how, [])
                getattr(self.shard, how)(one.consumer, [one] if several else one, *last)

    # reapers, and the moments they act on

    @rule(consumer=consumers, how=st.sampled_from(["live", "die", "lead", "lapse", "resign"]))
    def be(self, consumer: str, how: str) -> None:
        """Let a process die, wake up after it was thought dead, become the reaper or stop."""
        getattr(self.shard, how)(consumer)

    @when(lambda shard: shard.token and shard.held())
    @rule(number=pick, is_old=st.booleans())
    def reap(self, number: int, is_old: bool) -> None:
        """Hand back what another holds, as the reaper does: only what the dead hold."""
        consumer, (ticket,) = self.chosen("", [number])
        self.shard.reap(consumer, ticket, is_old)

    @when(lambda shard: shard.tickets)
    @rule(number=pick)
    def forget(self, number: int) -> None:
        """Take a consumer off a stream's group, only when it holds nothing."""
        (ticket,) = some(self.shard.tickets[-6:], [number])
        self.shard.forget(ticket.consumer, ticket.stream)

    @when(lambda shard: shard.lying("later"))
    @rule(numbers=picks, count=st.integers(1, 4))
    def come_due(self, numbers: list[int], count: int) -> None:
        """Let some moments come, and bring back what waited for them."""
        docs = list(dict.fromkeys(some(self.shard.lying("later"), numbers)))
        self.shard.come_due(docs, count)

    @when(lambda shard: shard.lying("parked"))
    @rule(count=st.sampled_from([1, 2, 1000]))
    def unpark(self, count: int) -> None:
        """Bring back what was parked."""
        self.shard.unpark(count)

    @when(lambda shard: any(doc.has_deadline for doc in shard.model.lying))
    @rule(name=st.sampled_from([*INTAKES, *READIES, "job:j0:parked", "job:j1:parked"]))
    def pass_deadlines(self, name: str) -> None:
        """End those whose deadline passed while they waited."""
        self.shard.pass_deadlines(name)

    @when(lambda shard: shard.model.cached)
    @rule(fp=fingerprints)
    def forget_answer(self, fp: str) -> None:
        """Let the result cache forget."""
        self.shard.forget_answer(fp)

    # operators

    @when(lambda shard: shard.letter_ids)
    @rule(numbers=picks, how=st.sampled_from(["retry", "retry", "drop"]))
    def decide(self, numbers: list[int], how: str) -> None:
        """Retry or drop dead letters, among them such as are gone."""
        getattr(self.shard, how)(some(list(self.shard.letter_ids)[-4:], numbers))

    # what must hold

    @invariant()
    def agrees(self) -> None:
        """Redis holds what the model says, and it adds up."""
        self.shard.check()

    def teardown(self) -> None:
        """Whatever happened, everything ends and nothing stays behind."""
        try:
            if self.shard.agrees():  # else it has failed already
                self.finish()
        finally:
            self.shard.clean_up()

    def finish(self) -> None:
        """Bring everything back and answer it."""
        for job_id in self.shard.model.jobs:
            self.shard.resume(job_id)
            self.shard.seal(job_id)
        rounds = 0
        while self.shard.model.lying:
            rounds += 1

            assert rounds < 50, self.shard.model.expected()["lying"]

            self.work_once()
        expected = self.shard.model.expected()

        assert (expected["leaders"], expected["running"]) == ({}, set())
        assert all(job.is_finished for job in self.shard.model.jobs.values())

    def work_once(self) -> None:
        """Do once whatever brings documents on."""
        shard = self.shard
        shard.unpark(1000)
        if later := shard.lying("later"):
            shard.come_due(later, len(later))
        for name in (*INTAKES, *READIES):
            shard.deliver("w1", name, 1000)
        for consumer in WORKERS:
            if held := shard.held("intake", consumer):
                shard.prepare(consumer, held, ["f1"] * len(held))
            if held := shard.held("ready", consumer):
                shard.begin(consumer, held)
                shard.complete(consumer, held, ["succeeded"] * len(held))
        shard.check()


def search(url: str, **how: Any) -> None:
    """Drive shards at random; raises with the shortest sequence found that breaks something."""
    client = redis.Redis.from_url(url, protocol=2)
    machine = type("Machine", (ShardMachine,), {"client": client})
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    how = {"deadline": None, "suppress_health_check": checks, "report_multiple_bugs": False, **how}
    try:
        run_state_machine_as_test(machine, settings=settings(database=None, **how))
    finally:
        client.close()


def test_a_shard_does_what_its_model_does(redis_url: str) -> None:
    """Whatever happens in whatever order, nothing is lost, doubled, miscounted or left behind."""
    search(redis_url, max_examples=120, stateful_step_count=50, derandomize=True)


if __name__ == "__main__":
    with running_redis() as server:
        examples = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
        search(server.url, max_examples=examples, stateful_step_count=80)
