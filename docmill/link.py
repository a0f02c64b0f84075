"""A shard of a namespace on a Redis, with the patience to sit out a restart.

Decides when a failed call is made again: everything called through `Link.run` is idempotent, so a
reply lost with its connection may be asked for anew. May import redis.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from redis.exceptions import BusyLoadingError, ResponseError

from docmill.connection import REDIS_ERRORS, connect, connection_error, is_passing
from docmill.errors import ConfigError
from docmill.keys import Keys
from docmill.scripts import Scripts
from docmill.transport import MasterMoved

T = TypeVar("T")

#: The longest BLOCK of a client's reads, in seconds.
BLOCK_S = 2.0

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_log = logging.getLogger("docmill")


#: Set when nobody waits for an operation any more; it then ends at its next chunk or pause.
abandoned: ContextVar[threading.Event | None] = ContextVar("docmill_abandoned", default=None)


class Abandoned(Exception):
    """Nobody waits for this operation any more."""


def check_abandoned() -> None:
    """Raise `Abandoned` if nobody waits for the operation that this thread carries out."""
    event = abandoned.get()
    if event is not None and event.is_set():
        raise Abandoned


def pause(seconds: float) -> None:
    """Sleep, unless nobody waits any more.

    Raises:
        Abandoned: Nobody waits for the operation any more.
    """
    event = abandoned.get()
    if event is None:
        time.sleep(seconds)
    else:
        event.wait(seconds)
        check_abandoned()


def pause_s(attempt: int) -> float:
    """Return how long to wait before trying again: doubling, bounded, spread out by chance."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * float(2 ** min(attempt, 10)))
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, keeps no secret


class Link:
    """The connection, keys and scripts of one shard; thread-safe.

    Args:
        url: See `docmill.connection.connect`.
        namespace: Separates installations that share one Redis.
        reconnect_s: How long a connection that worked before may be away. One that never worked
            fails at once, unless Redis itself says that it will be ready later.
        shard: Which shard of the namespace.
        is_known: Whether another link to the same Redis has worked before.

    Raises:
        ConfigError: The URL or the namespace cannot be used.
    """

    def __init__(
        self,
        url: str,
        namespace: Any,
        reconnect_s: float,
        shard: int = 0,
        *,
        is_known: bool = False,
    ) -> None:
        if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
            raise ConfigError(
                f"namespace {namespace!r:.80} must be 1 to 64 letters, digits, dots, dashes or "
                "underscores"
            )
        self.url = url
        self.keys = Keys(namespace, shard)
        self.client: Any = connect(url, block_s=BLOCK_S, key=self.keys.prefix)
        self.scripts = Scripts(self.client, self.keys.prefix)
        self._reconnect_s = reconnect_s
        self._has_worked = is_known

    def run(self, operation: Callable[[], T]) -> T:
        """Run something idempotent, again for as long as Redis is away for a while.

        Raises:
            BrokerUnavailable: Redis cannot be reached, or refuses; the driver's error is its cause.
        """
        give_up_at: float | None = None
        attempt = 0
        while True:
            try:
                value = operation()
            except REDIS_ERRORS as error:
                now = time.monotonic()
                give_up_at = give_up_at or now + self._reconnect_s
                if not self._may_wait(error) or now >= give_up_at:
                    raise connection_error(error, self.url) from error
                if attempt == 0:
                    _log.warning("%s; trying again", connection_error(error, self.url))
                pause(pause_s(attempt))
                attempt += 1
            else:
                self._has_worked = True
                return value

    def _may_wait(self, error: Exception) -> bool:
        # one that answers at all, if only that it is loading, shows that the address is right
        answers = isinstance(error, BusyLoadingError | ResponseError | MasterMoved)
        return is_passing(error) and (self._has_worked or answers)

    def close(self) -> None:
        """Close the connections; the link cannot be used afterwards."""
        self.client.close()
