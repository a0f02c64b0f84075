"""What must be true of a shard once the storm is over.

Decides what counts as lost, as doubled and as left over; changes nothing. May import redis, docmill
and the piles.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docmill import Client
from docmill.errors import JobError
from docmill.keys import GROUP, Keys
from docmill.results import Result
from tests.chaos.piles import Oracle, Pile
from tests.support.shard_answers import ANSWER_OVERHEAD

#: Keys under the shard's prefix that stay, by what follows it. The streams and tables among them
#: are looked into; `arq:queue` holds what arq does next.
_PERMANENT = {
    *("backlog", "consumers", "jobs", "models", "shards", "reaper:token", "arq:queue"),
    *("answers", "answers:bytes", "sharing"),
}
#: Keys that may stay only with an expiry.
_PASSING = re.compile(
    r"(heartbeat|absent|alone|result):.+|reaper|job:[^:]+(:(ids|specs|results|bodies|history"
    r"|cancelled))?|arq:(in-progress|health-check).*"
)
_STREAM = re.compile(r"(intake|ready):.+")


@dataclass(slots=True)
class Verdict:
    """What was found: custom ids lost and doubled, and whatever else is wrong, in words."""

    num_documents: int = 0
    num_retried: int = 0
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Add what was found elsewhere."""
        self.num_documents += other.num_documents
        self.num_retried += other.num_retried
        self.lost += other.lost
        self.double += other.double
        self.faults += other.faults

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.double or self.faults)


class Audit:
    """Looks at one shard from outside.

    Args:
        client: A plain connection to its Redis, which holds nothing else.
        url: Where a docmill client reads results.
        keys: The shard's keys.
        folder: Where the customers leave their notes.
    """

    def __init__(self, client: Any, url: str, keys: Keys, folder: Path) -> None:
        self._client = client
        self._url = url
        self._keys = keys
        self._folder = folder
        self._oracle = Oracle()

    def leftovers(self, live_pids: Collection[int]) -> list[str]:
        """Return what is left over though all jobs have ended: nothing, some seconds later."""
        return list(self._leftovers(live_pids))

    def _leftovers(self, live_pids: Collection[int]) -> Iterator[str]:
        for key in sorted(self._client.scan_iter(count=1000)):
            name = key.decode().removeprefix(f"{self._keys.prefix}:")
            if _STREAM.fullmatch(name):
                yield from self._in_stream(name, key, live_pids)
            elif name == "backlog":
                held = self._client.hmget(key, "docs", "bytes")
                if any(int(value or 0) for value in held):
                    yield f"backlog: {held}"
            elif name == "consumers":
                yield from _strangers(name, self._client.hkeys(key), live_pids)
            elif name == "answers":
                yield from self._in_answers()
            elif name == "dead":
                if self._client.xlen(key):
                    yield f"dead: {self._client.xlen(key)} letters"
            elif name not in _PERMANENT:
                yield from self._expiring(name, key)

    def _in_stream(self, name: str, key: bytes, live_pids: Collection[int]) -> Iterator[str]:
        length = self._client.xlen(key)
        if length:
            yield f"{name}: {length} entries"
        for group in self._client.xinfo_groups(key):
            if group["pending"]:
                yield f"{name}: {group['pending']} entries pending"
        names = [one["name"] for one in self._client.xinfo_consumers(key, GROUP)]
        yield from _strangers(name, names, live_pids)

    def _in_answers(self) -> Iterator[str]:
        """Yield what the books on stored answers get wrong."""
        keys = self._keys
        sizes = {fp: int(size) for fp, size in self._client.hgetall(keys.answer_bytes).items()}
        told = int(self._client.hget(keys.sharing, "answer_bytes") or 0)
        if told != sum(sizes.values()):
            yield f"answers: {told} bytes in all, {sum(sizes.values())} one by one"
        for fp in self._client.zrange(keys.answers, 0, -1):
            size = sizes.pop(fp, None)
            length = self._client.strlen(keys.cached_result(fp.decode()))
            if length and length + ANSWER_OVERHEAD != size:  # else it has expired
                yield f"answers: {fp.decode()} is not of the {size} bytes that are written down"
        if sizes:
            yield f"answers: {len(sizes)} sizes of answers that are not listed"

    def _expiring(self, name: str, key: bytes) -> Iterator[str]:
        expires = self._client.pttl(key)
        if expires == -1:  # -2: it has just expired
            yield f"{name}: no expiry"
        elif expires > 0 and not _PASSING.fullmatch(name) and not name.startswith("arq:"):
            yield f"{name}: unknown"

    def check(self, pile: Pile, now: float, verdict: Verdict) -> None:
        """Compare a finished job with its pile, and with what its customer saw."""
        custom_ids = set(pile.documents()) | {pile.second_id}
        verdict.num_documents += len(custom_ids)
        try:
            with Client(self._url, self._keys.namespace) as client:
                job = client.job(pile.job_id)
                status, results = job.status(), list(job.results(timeout=10))
        except JobError as error:
            verdict.lost += [f"{pile.job_id}/{name}: {error}" for name in sorted(custom_ids)]
            return
        verdict.num_retried += self._client.hlen(self._keys.history(pile.job_id))
        say = _speaker(verdict, pile)
        counts = Counter(result.custom_id for result in results)
        verdict.double += [f"{pile.job_id}/{name}" for name, n in counts.items() if n > 1]
        missing = sorted(custom_ids - set(counts))
        if pile.whim in ("patient", "pauses") or status.cancelled != len(missing):
            verdict.lost += [f"{pile.job_id}/{name}" for name in missing]
        if status.submitted != len(custom_ids) or status.done != status.submitted:
            say(f"{len(custom_ids)} documents, but counted as {status}")
        if status.running or not status.is_finished:
            say(f"not at its end: {status}")
        if self._client.xlen(self._keys.results(pile.job_id)) != len(results):
            say(f"the client shows {len(results)} results, the stream holds another number")
        self._check_answers(pile, results, now, say)
        self._check_note(pile, results, say)

    def _check_answers(
        self, pile: Pile, results: list[Result], now: float, say: Callable[[str], None]
    ) -> None:
        specs = self._client.hgetall(self._keys.specs(pile.job_id))
        for result in results:
            problem = self._oracle.problem_with(result, pile, specs, now)
            if problem:
                say(f"{result.custom_id}: {problem}")

    def _check_note(self, pile: Pile, results: list[Result], say: Callable[[str], None]) -> None:
        seen = json.loads((self._folder / f"{pile.job_id}.json").read_text())
        there = [[result.custom_id, result.outcome, result.text] for result in results]
        if seen != there:
            say(f"its customer saw {len(seen)} results, not the {len(there)} that are there")


def _speaker(verdict: Verdict, pile: Pile) -> Callable[[str], None]:
    def say(problem: str) -> None:
        verdict.faults.append(f"{pile.job_id}: {problem}")

    return say


def _strangers(where: str, consumers: list[bytes], live_pids: Collection[int]) -> Iterator[str]:
    """Yield the consumers of processes that are gone; names are host-pid-nonce."""
    for consumer in consumers:
        if int(consumer.split(b"-")[-2]) not in live_pids:
            yield f"{where}: consumer {consumer.decode()} is gone"
