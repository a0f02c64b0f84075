"""Measures how long the entries of a killed worker stay with the dead.

Decides nothing. An entry has left when it is not pending for the dead consumer any more: handed
back (and read by somebody at once, who waits for it), or given to somebody else. May import redis
and docmill.keys.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from docmill.keys import GROUP, Keys


@dataclass(frozen=True, slots=True)
class _Estate:
    """What a dead consumer holds of one stream."""

    stream: bytes
    consumer: bytes
    died_at: float


class Watch:
    """Follows the entries of the dead.

    Args:
        client: A plain connection to Redis.
        keys: The shard's keys.
    """

    def __init__(self, client: Any, keys: Keys) -> None:
        self.times_s: list[float] = []
        self._client = client
        self._keys = keys
        self._estates: list[_Estate] = []

    @property
    def is_idle(self) -> bool:
        """Whether everything that was followed has left."""
        return not self._estates

    def died(self, pid: int) -> int:
        """Follow what the process with this id holds; call it as soon as it is dead.

        Returns on how many streams it holds something.
        """
        now = time.monotonic()
        try:
            found = [_Estate(*pair, now) for pair in self._of(pid) if self._pending(*pair)]
        except (redis.RedisError, OSError):
            return 0  # Redis is down as well: this one is not measured
        self._estates += found
        return len(found)

    def num_held(self, pid: int) -> int:
        """Return how many streams hold something for the process with this id."""
        return sum(self._pending(*pair) for pair in self._of(pid))

    def _of(self, pid: int) -> list[tuple[bytes, bytes]]:
        consumers = self._client.hkeys(self._keys.consumers)
        return [
            (stream, consumer)
            for consumer in consumers
            if int(consumer.split(b"-")[-2]) == pid
            for stream in self.streams()
        ]

    def streams(self) -> Sequence[bytes]:
        """Return the streams that workers share."""
        found: list[bytes] = []
        for kind in ("intake", "ready"):
            pattern = f"{self._keys.prefix}:{kind}:*".replace("{", r"\{").replace("}", r"\}")
            found += self._client.scan_iter(match=pattern, count=1000)
        return found

    def look(self) -> None:
        """Note what has left since the last look."""
        try:
            self._estates = [estate for estate in self._estates if not self._has_left(estate)]
        except (redis.RedisError, OSError):
            return

    def _has_left(self, estate: _Estate) -> bool:
        if self._pending(estate.stream, estate.consumer):
            return False
        self.times_s.append(time.monotonic() - estate.died_at)
        return True

    def _pending(self, stream: bytes, consumer: bytes) -> int:
        return len(self._client.xpending_range(stream, GROUP, "-", "+", 1, consumer))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of them lie (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)] if ordered else 0.0
