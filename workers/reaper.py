"""Hands back what dead workers hold.

Decides who counts as dead: a consumer whose heartbeat has been missing for some seconds, as seen
from Redis itself. The moment it was first missed is kept in Redis, so that any process may look
next, and after a restart of Redis the living have time to show themselves. Every step is fenced by
its script, so that two reapers at once do no harm. May import redis, docmill and workers.registry.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import LockError

from docmill.errors import JobDeadLettered
from docmill.keys import GROUP, TIERS, Keys
from docmill.scripts import Scripts
from docmill.wire import Body, Failure
from workers.registry import buckets_by_version

#: How long one reaper may work before another takes over; renewed while it works.
_LOCK_S = 2.0
#: Entries handed back per round trip.
_CHUNK = 100
#: A missed heartbeat is forgotten after this many confirmation times without a look at it.
_MEMORY = 5


@dataclass(frozen=True, slots=True)
class Report:
    """What was done: `handed_back` entries, `dead` ones given up, and consumers forgotten."""

    handed_back: int = 0
    dead: int = 0
    forgotten: tuple[str, ...] = ()


def confirmation_s(heartbeat_ttl_s: float) -> float:
    """Return how long a heartbeat must have been missing: 2 s by default, well under the lifetime.

    Together with the heartbeat's lifetime (5 s) and one look a second: entries are back within 8 s.
    """
    return 0.4 * heartbeat_ttl_s


def reap(client: Any, keys: Keys, *, confirm_s: float, max_deliveries: int) -> Report:
    """Hand back the entries of consumers confirmed dead, and forget those that hold nothing.

    Does nothing while another reaper is at work.

    Args:
        client: A connection to Redis.
        keys: The shard's keys.
        confirm_s: How long a heartbeat must have been missing.
        max_deliveries: Deliveries after which an entry becomes a dead letter.

    Raises:
        redis.RedisError: Redis failed; calling again is safe.

    Cost: two round trips when all are alive.
    """
    lock = client.lock(keys.reaper, timeout=_LOCK_S, blocking=False)
    if not lock.acquire():
        return Report()
    try:
        return _Reaper(client, keys, lock, max_deliveries).reap(confirm_s)
    except LockError:  # it took too long: somebody else goes on
        return Report()
    finally:
        _let_go(lock)


def _let_go(lock: Any) -> None:
    try:
        lock.release()
    except LockError:
        return  # it lapsed; its next owner's is not ours to release


class _Reaper:
    def __init__(self, client: Any, keys: Keys, lock: Any, max_deliveries: int) -> None:
        self._client = client
        self._keys = keys
        self._lock = lock
        self._max_deliveries = max_deliveries
        self._scripts = Scripts(client, keys.prefix)

    def reap(self, confirm_s: float) -> Report:
        groups = consumers_by_stream(self._client, streams(self._client, self._keys))
        listed = {name.decode() for name in self._client.hkeys(self._keys.consumers)}
        dead = self._confirmed_dead(sorted(listed.union(*groups.values())), confirm_s)
        replies: list[Any] = []
        for stream, consumers in groups.items():
            for consumer in consumers & dead:
                replies += self._hand_back(stream, consumer)
                heartbeat = self._keys.heartbeat(consumer)
                self._scripts.call("forget", stream, GROUP, consumer, heartbeat)
        if dead:
            self._client.hdel(self._keys.consumers, *dead)
        return Report(replies.count(b"BACK"), replies.count(b"DEAD"), tuple(sorted(dead)))

    def _confirmed_dead(self, consumers: Sequence[str], confirm_s: float) -> set[str]:
        """Return those missing for long; remember who is newly missing, forget who is back."""
        if not consumers:
            return set()
        heartbeats = self._client.mget([self._keys.heartbeat(name) for name in consumers])
        alive = [name for name, at in zip(consumers, heartbeats, strict=True) if at is not None]
        if alive:
            self._client.delete(*map(self._keys.absent, alive))
        missing = sorted(set(consumers) - set(alive))
        return {name for name in missing if self._missing_s(name, confirm_s) >= confirm_s}

    def _missing_s(self, consumer: str, confirm_s: float) -> float:
        absent, memory_ms = self._keys.absent(consumer), int(_MEMORY * confirm_s * 1000)
        self._client.set(absent, 1, nx=True, px=memory_ms)
        missing_ms: int = memory_ms - self._client.pttl(absent)
        return missing_ms / 1000

    def _hand_back(self, stream: str, consumer: str) -> Iterator[Any]:
        """Hand back everything pending for a consumer; yield the script's replies."""
        body = _given_up(self._max_deliveries).encode()
        heartbeat, since = self._keys.heartbeat(consumer), "-"
        while True:
            self._lock.reacquire()
            pending = self._client.xpending_range(stream, GROUP, since, "+", _CHUNK, consumer)
            if not pending:
                return
            with self._client.pipeline(transaction=False) as pipe:
                for entry in pending:
                    owned = (stream, GROUP, consumer, entry["message_id"], heartbeat)
                    self._scripts.call(
                        "redeliver", *owned, 1, self._max_deliveries, body, pipe=pipe
                    )
                yield from pipe.execute(raise_on_error=False)
            # an entry that could not be handed back is passed over, not tried for ever
            since = "(" + pending[-1]["message_id"].decode()


def _given_up(max_deliveries: int) -> Body:
    message = (
        f"given up after {max_deliveries} deliveries: each time the worker that had it died; "
        "the dead letters hold it"
    )
    return Body(outcome="failed", error=Failure(code=JobDeadLettered.code, message=message))


def streams(client: Any, keys: Keys) -> list[str]:
    """Return every stream that workers share: intakes, and ready streams of all known models."""
    found = [keys.intake(tier) for tier in TIERS]
    for version, num_buckets in buckets_by_version(client, keys).items():
        found += [
            keys.ready(version, tier, bucket) for tier in TIERS for bucket in range(num_buckets)
        ]
    return found


def consumers_by_stream(client: Any, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the group's consumers on each stream that exists. Cost: one round trip."""
    names = list(names)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.xinfo_consumers(name, GROUP)
        replies = pipe.execute(raise_on_error=False)
    return {
        name: {consumer["name"].decode() for consumer in reply}
        for name, reply in zip(names, replies, strict=True)
        if not isinstance(reply, redis.ResponseError)  # no such stream or group: nothing to do
    }
