"""Hands back what dead workers hold.

Decides who counts as dead: a consumer whose heartbeat has been missing for some seconds, as seen
from Redis itself. The moment it was first missed is kept in Redis, so that any process may look
next, and after a restart of Redis the living have time to show themselves. One reaper leads a shard
at a time; its token fences every entry it hands back, so that one that was paused in mid-round does
nothing to what another has handed out since. All writes are scripts that a full memory does not
stop. May import redis, docmill and workers.registry.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from docmill.errors import JobDeadLettered
from docmill.keys import GROUP, TIERS, Keys
from docmill.scripts import Scripts
from docmill.wire import Body, Failure
from workers.registry import buckets_by_version

#: How long one reaper leads without a sign of life: a killed one's shard is another's that soon.
_LEAD_MS = 2000
#: Entries handed back per round trip.
_CHUNK = 100
#: However low the limit: of what was delivered together any may be the cause of a death, and only
#: from its second delivery on each runs alone.
_LEAST_DELIVERIES = 2
#: A missed heartbeat is forgotten after this many confirmation times without a look at it.
_MEMORY = 5


@dataclass(frozen=True, slots=True)
class Report:
    """What was done: entries `handed_back` and `dead` ones given up, and the consumers forgotten.

    Those that `left` had said goodbye and held nothing; all others are `lost`.
    """

    handed_back: int = 0
    dead: int = 0
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


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
    return _Reaper(client, keys, max_deliveries).reap(confirm_s)


class _Reaper:
    def __init__(self, client: Any, keys: Keys, max_deliveries: int) -> None:
        self._client = client
        self._keys = keys
        self._max_deliveries = max_deliveries = max(max_deliveries, _LEAST_DELIVERIES)
        self._scripts = Scripts(client, keys.prefix)
        self._holder = secrets.token_hex(8)
        message = (
            f"given up after {max_deliveries} deliveries: each time the worker that had it died; "
            "the dead letters hold it"
        )
        failure = Failure(code=JobDeadLettered.code, message=message)
        self._told = (failure.code, Body(outcome="failed", error=failure).encode(), message, "")

    def reap(self, confirm_s: float) -> Report:
        token = self._lead()
        if not token:
            return Report()
        try:
            return self._reap(token, confirm_s)
        finally:
            self._scripts.call("resign", self._holder)

    def _lead(self) -> int:
        token: int = self._scripts.call("lead", self._holder, _LEAD_MS)
        return token

    def _reap(self, token: int, confirm_s: float) -> Report:
        groups = consumers_by_stream(self._client, streams(self._client, self._keys))
        listed = _names(self._client.hkeys(self._keys.consumers))
        dead = self._confirmed_dead(sorted(listed.union(*groups.values())), confirm_s)
        if not dead:
            return Report()
        replies = [
            (consumer, reply)
            for stream, consumers in groups.items()
            for consumer in consumers & dead
            for reply in self._hand_back(token, stream, consumer)
        ]
        verdicts = [reply for _, reply in replies]
        told = verdicts.count(b"BACK"), verdicts.count(b"DEAD")
        if self._lead() != token:  # another goes on where this one was
            return Report(*told)
        self._client.hdel(self._keys.consumers, *dead)
        self._client.delete(*map(self._keys.alone, dead))
        lost = dead & (listed | {consumer for consumer, _ in replies})
        return Report(*told, tuple(sorted(lost)), tuple(sorted(dead - lost)))

    def _confirmed_dead(self, consumers: Sequence[str], confirm_s: float) -> set[str]:
        """Return those missing for long; remember who is newly missing, forget who is back."""
        if not consumers:
            return set()
        missing_ms = self._scripts.call("missing", int(_MEMORY * confirm_s * 1000), *consumers)
        return {
            name for name, ms in zip(consumers, missing_ms, strict=True) if ms >= confirm_s * 1000
        }

    def _hand_back(self, token: int, stream: str, consumer: str) -> Iterator[Any]:
        """Hand back everything pending for a consumer, then forget it; yield the replies.

        What a preprocessing worker did alone is what it died of, if anything: only that counts.
        """
        alone = self._client.get(self._keys.alone(consumer))
        heartbeat, since = self._keys.heartbeat(consumer), "-"
        while self._lead() == token:
            pending = self._client.xpending_range(stream, GROUP, since, "+", _CHUNK, consumer)
            if not pending:
                self._scripts.call("forget", stream, GROUP, consumer, heartbeat)
                return
            with self._client.pipeline(transaction=False) as pipe:
                for entry in pending:
                    owned = (stream, GROUP, consumer, entry["message_id"])
                    counted = int(alone in (None, entry["message_id"]))
                    told = (counted, self._max_deliveries, 0, *self._told, heartbeat, token)
                    self._scripts.call("redeliver", *owned, *told, pipe=pipe)
                yield from pipe.execute(raise_on_error=False)
            # an entry that could not be handed back is passed over, not tried for ever
            since = "(" + pending[-1]["message_id"].decode()


def streams(client: Any, keys: Keys) -> list[str]:
    """Return every stream that workers share: intakes, and ready streams of all known models."""
    found = [keys.intake(tier) for tier in TIERS]
    for version, num_buckets in buckets_by_version(client, keys).items():
        found += [
            keys.ready(version, tier, bucket) for tier in TIERS for bucket in range(num_buckets)
        ]
    return found


def _names(consumers: Iterable[bytes]) -> set[str]:
    """Return names as text, without what can be no consumer of ours."""
    return {
        text for text in (name.decode(errors="replace") for name in consumers) if text.isascii()
    }


def consumers_by_stream(client: Any, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the group's consumers on each stream that exists. Cost: one round trip."""
    names = list(names)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.xinfo_consumers(name, GROUP)
        replies = pipe.execute(raise_on_error=False)
    return {
        name: _names(consumer["name"] for consumer in reply)
        for name, reply in zip(names, replies, strict=True)
        if not isinstance(reply, redis.ResponseError)  # no such stream or group: nothing to do
    }
