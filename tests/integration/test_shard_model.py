"""One shard, driven at random through every script and compared with its model after each step.

In the suite the search is short and always the same. To search further, with other steps each time:
`python -m tests.integration.test_shard_model [number of examples]`. A failure is shown as the
shortest sequence found, each step with the calls that it came to.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from docmill.keys import TIERS
from tests.support.redis_server import running_redis
from tests.support.shard_driver import INTAKES, READIES, WORKERS, Driver
from tests.support.shard_records import Ticket

T = TypeVar("T")

#: What may come next, in proportion.
MOVES = (
    *("submit", "steer", "steer", "cancel_singly", "decide", "decide"),
    *("split", "split", "meddle"),
    *("work", "work", "work", "work", "work", "work", "fail", "fail", "fail", "come_late", "be"),
    *("wait", "wait", "catch_up", "ruin"),
)


@dataclass(frozen=True, slots=True)
class Dice:
    """Everything that one move may leave to chance; numbers choose among what is there then."""

    number: int
    numbers: list[int]
    job_id: str
    tier: str
    ids: list[str]
    is_hasty: bool
    consumer: str
    fps: list[str | None]
    ends: list[str]


def four(each: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """Return as many as a call names at most."""
    return st.lists(each, min_size=4, max_size=4)


custom_ids = st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=4)
dices = st.builds(
    Dice,
    number=st.integers(0, 999),
    numbers=st.lists(st.integers(0, 999), min_size=1, max_size=4),
    job_id=st.sampled_from(["j0", "j1"]),
    tier=st.sampled_from(TIERS),
    ids=custom_ids,
    is_hasty=st.booleans(),
    consumer=st.sampled_from(WORKERS),
    fps=four(st.sampled_from(["", "f1", "f2", None])),
    ends=four(st.sampled_from(["succeeded", "succeeded", "expired", "cancelled"])),
)


def some(things: Sequence[T], numbers: Sequence[int]) -> list[T]:
    """Return the things of these numbers, one perhaps twice; none if there are none."""
    return [things[number % len(things)] for number in numbers if things]


class ShardMachine(RuleBasedStateMachine):
    """Does what clients, workers, reapers and operators do; late, twice and at once.

    One rule that chooses among what is possible: of a rule for each script, hypothesis would leave
    out half in each example, and few documents would ever come far.
    """

    client: Any
    shard: Driver

    @initialize(max_docs=st.sampled_from([1000, 1000, 6]), ids=custom_ids, is_hasty=st.booleans())
    def start(self, max_docs: int, ids: list[str], is_hasty: bool) -> None:
        """Start with something to work on."""
        self.shard = Driver(self.client, max_docs)
        for consumer in WORKERS:
            self.do("live", consumer)
        for job_id, tier in zip(("j0", "j1"), TIERS, strict=True):
            self.do("open", job_id)
            self.do("submit", job_id, tier, ids, is_hasty)

    @rule(move=st.sampled_from(MOVES), dice=dices)
    def step(self, move: str, dice: Dice) -> None:
        """Do something."""
        getattr(self, f"_{move}")(dice)

    def do(self, name: str, *args: Any) -> None:
        """Have something done, and tell it."""
        note(f"    {name}{args}")
        getattr(self.shard, name)(*args)

    def do_one(self, calls: Sequence[tuple[Any, ...]], number: int) -> None:
        """Have one of these done, if there are any."""
        for call in some(calls, [number]):
            self.do(*call)

    # clients and operators

    def _submit(self, dice: Dice) -> None:
        self.do("submit", dice.job_id, dice.tier, dice.ids, dice.is_hasty)

    def _steer(self, dice: Dice) -> None:
        job = self.shard.model.jobs.get(dice.job_id)
        fates = ["open", "open", "open", "seal", "reject"]
        if job and not job.is_finished:
            fates = ["resume"] * 2 if job.is_paused else ["pause"] * 4
            fates += ["open", "seal", "seal", "reject", "abandon", "cancel"]
        self.do(*some(fates, [dice.number]), dice.job_id)

    def _cancel_singly(self, dice: Dice) -> None:
        # among them such as are dead, or not the job's own
        if docs := self.shard.model.lying + [one.doc for one in self.shard.model.letters]:
            docs = [doc.job.whole or doc for doc in some(docs, dice.numbers)]
            self.do("cancel", docs[0].job.name, [doc.custom_id for doc in docs])

    def _meddle(self, dice: Dice) -> None:
        # with jobs whose documents are answered in parts
        for whole in some(self.shard.lying("whole"), dice.numbers[:1]):
            job = whole.job.name
            singly = ("cancel", job, [whole.custom_id, *dice.ids])
            calls = [("resume", job)] if whole.job.is_paused else [("pause", job)]
            self.do_one([("cancel", job), singly, *calls], dice.number)

    def _decide(self, dice: Dice) -> None:
        # also on letters that are gone
        if letters := list(self.shard.letter_ids)[-4:]:
            self.do("retry" if dice.number % 4 else "drop", some(letters, dice.numbers))

    # workers

    def _work(self, dice: Dice) -> None:
        is_waiting = self.shard.model.waiting
        intakes, readies = list(filter(is_waiting, INTAKES)), list(filter(is_waiting, READIES))
        calls: list[Callable[[Dice], None]] = []
        if intakes:
            calls += [self._read_intake, self._bring_on]
        if readies:
            calls += [self._read_ready, self._take_up]
        if self.shard.held("intake"):
            calls += [self._prepare]
        if self.shard.held("ready"):
            calls += [self._begin, self._complete, self._complete]
        for call in some(calls, [dice.number]):
            call(dice)

    def _read_intake(self, dice: Dice) -> None:
        names = list(filter(self.shard.model.waiting, INTAKES))
        self.do("deliver", dice.consumer, *some(names, dice.numbers[:1]), len(dice.numbers))

    def _read_ready(self, dice: Dice) -> None:
        names = list(filter(self.shard.model.waiting, READIES))
        self.do("deliver", dice.consumer, *some(names, dice.numbers[:1]), len(dice.numbers))

    def _bring_on(self, dice: Dice) -> None:
        for name in INTAKES:
            self.do("deliver", dice.consumer, name, 2)
        self.do("prepare", dice.consumer, self.shard.held("intake", dice.consumer)[-4:], dice.fps)

    def _take_up(self, dice: Dice) -> None:
        for name in READIES:
            self.do("deliver", dice.consumer, name, 2)
        self.do("begin", dice.consumer, self.shard.held("ready", dice.consumer)[-4:])

    def chosen(self, kind: str, numbers: Sequence[int]) -> tuple[str, list[Ticket]]:
        """Choose a consumer that holds something, and what it names: perhaps one thing too many."""
        consumer = some(self.shard.held(kind), numbers)[0].consumer
        held = self.shard.held(kind, consumer)
        recent = [one for one in self.shard.tickets[-20:] if one.stream.startswith(kind)]
        others = [one for one in recent if one not in held]
        return consumer, some(held + others[-1:], numbers)

    def _prepare(self, dice: Dice) -> None:
        self.do("prepare", *self.chosen("intake", dice.numbers), dice.fps)

    def _begin(self, dice: Dice) -> None:
        self.do("begin", *self.chosen("ready", dice.numbers))

    def _complete(self, dice: Dice) -> None:
        max_bytes = (0, 3000, 2**20)[dice.number % 3]  # of answers: none, some, all
        self.do("complete", *self.chosen("ready", dice.numbers), dice.ends, max_bytes)

    def _split(self, dice: Dice) -> None:
        # also late, by one that lost it; no parts of parts, and two rounds at most
        for consumer in WORKERS:
            self.do("deliver", consumer, INTAKES[dice.number % 2], 1)
        intakes = [one for one in self.shard.tickets[-20:] if one.stream in INTAKES]
        whole = [one for one in intakes if not one.doc.job.is_of_parts and one.doc.rounds < 2]
        held = [one for one in whole if one.is_held_by(one.consumer)]
        for one in some(held or whole, [dice.number]):
            self.do("split", one.consumer, one, len(dice.numbers))

    def _catch_up(self, dice: Dice) -> None:
        note("    everything is worked off")
        self.work_once()

    # what goes wrong

    def _fail(self, dice: Dice) -> None:
        if not self.shard.held():
            return
        consumer, (ticket,) = self.chosen("", [dice.number])
        calls: list[tuple[Any, ...]] = [
            ("bury", consumer, ticket),
            ("hand_back", consumer, ticket, dice.is_hasty, False),
            ("hand_back", consumer, ticket, dice.is_hasty, True),
            ("reap", consumer, ticket, dice.is_hasty),
        ]
        if not self.shard.leader:
            self.do("lead", dice.consumer)
        if dice.number % 2:
            self.do("die", consumer)
        self.do_one(calls, dice.numbers[0])

    def _ruin(self, dice: Dice) -> None:
        # equal documents whose prompt kills whatever takes it up
        for name in INTAKES:
            self.do("deliver", dice.consumer, name, 4)
        held = self.shard.held("intake", dice.consumer)[-6:]
        self.do("prepare", dice.consumer, held, ["f1"] * len(held))
        for _ in range(1 + dice.number % 3):
            for name in READIES:
                self.do("deliver", dice.consumer, name, 1)
            for ticket in self.shard.held("ready", dice.consumer)[-2:]:
                self.do("bury", dice.consumer, ticket)

    def _come_late(self, dice: Dice) -> None:
        # a worker that was frozen goes on with what was taken away meanwhile
        held = self.shard.held()
        late = [one for one in self.shard.tickets if one not in held]
        for one in some(late, dice.numbers[:1]):
            calls: list[tuple[Any, ...]] = [
                ("bury", one.consumer, one),
                ("hand_back", one.consumer, one, dice.is_hasty, False),
            ]
            if one.stream in INTAKES:
                calls += [("prepare", one.consumer, [one], dice.fps)]
            else:
                calls += [("begin", one.consumer, [one])]
                calls += [("complete", one.consumer, [one], dice.ends)]
            self.do_one(calls, dice.number)

    def _be(self, dice: Dice) -> None:
        fates = ["die"] if dice.consumer in self.shard.alive else ["live"]
        fates += ["lapse", "resign"] if dice.consumer == self.shard.leader else ["lead"]
        calls: list[tuple[Any, ...]] = [(fate, dice.consumer) for fate in fates]
        calls += [("forget", one.consumer, one.stream) for one in self.shard.tickets[-1:]]
        self.do_one(calls, dice.number)

    def _wait(self, dice: Dice) -> None:
        shard, jobs = self.shard, self.shard.model.jobs
        calls: list[tuple[Any, ...]] = []
        if later := shard.lying("later"):
            due = list(dict.fromkeys(some(later, dice.numbers)))
            calls += [("come_due", due, 1 + dice.number % 3)]
        if shard.lying("parked"):
            calls += [("unpark", (1, 2, 1000)[dice.number % 3])]
        if hasty := [doc for doc in shard.model.lying if doc.has_deadline]:
            calls += [("pass_deadlines", *some(hasty, dice.numbers[:1]))]
        calls += [("expire", job_id) for job_id, job in jobs.items() if job.is_over]
        if answers := list(shard.model.answers.sizes):
            calls += [("forget_answer", *some(answers, dice.numbers[:1]))]
            aged = set(some(answers, dice.numbers)) if dice.is_hasty else ()
            calls += [("trim", sorted(aged), (0, 3000, 2**20)[dice.number % 3])]
        self.do_one(calls, dice.number)

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
        model = self.shard.model
        for job_id in model.jobs:
            self.shard.resume(job_id)
            self.shard.seal(job_id)
        for _ in range(60):
            if model.lying:
                self.work_once()
        expected = model.expected()

        assert (expected["lying"], expected["leaders"], expected["running"]) == ({}, {}, set())
        assert all(job.is_over for job in model.jobs.values())

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


@pytest.mark.timeout(240)  # thousands of calls
def test_a_shard_does_what_its_model_does(redis_url: str) -> None:
    """Whatever happens in whatever order, nothing is lost, doubled, miscounted or left behind."""
    search(redis_url, max_examples=60, stateful_step_count=50, derandomize=True)


if __name__ == "__main__":
    with running_redis() as server:
        examples = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
        search(server.url, max_examples=examples, stateful_step_count=80)
