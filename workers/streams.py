"""Reading the shared streams, and staying calm while Redis is away.

Decides how a worker asks for entries and what it does when Redis does not answer; knows nothing of
what the entries hold. A blocked read whose reply was lost has still delivered: after every failure
the reader therefore looks through its own pending entries for those it never saw. May import redis
and docmill.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import redis

from docmill import connection
from docmill.connection import REDIS_ERRORS, is_out_of_memory, is_passing
from docmill.errors import BrokerUnavailable
from docmill.keys import GROUP, Keys
from docmill.transport import code_of
from workers import log
from workers.settings import Settings

T = TypeVar("T")

#: How long a read waits for entries: also how late a stop is noticed, and others are to have what
#: waits within a second of it. Four reads a second cost an idle worker a thousandth of a core.
BLOCK_MS = 250
#: Silence after which a connection is broken; above any pause of a healthy Redis.
TIMEOUT_S = 15.0
FIRST_DELAY_S = 0.05
MAX_DELAY_S = 2.0
_RECOVER_COUNT = 500


def connect(settings: Settings, role: str) -> Any:
    """Return a client for the configured shard; connects on first use, and again after a loss.

    Raises:
        ConfigError: No Redis is configured, or its URL cannot be used.
    """
    return connection.connect(
        settings.known_redis_url(),
        timeout_s=TIMEOUT_S,
        block_s=BLOCK_MS / 1000,
        name=f"docmill-{role}",
        key=Keys(settings.namespace, settings.shard).prefix,
    )


def is_outage(error: Exception) -> bool:
    """Whether the same call may succeed later, for a process that has already worked.

    Refused credentials count: a password is often changed on the server first.
    """
    if isinstance(error, redis.ResponseError):
        return is_passing(error) or code_of(error) == "NOGROUP"
    return isinstance(error, redis.ConnectionError) or is_passing(error)


class Outage:
    """Waits between one thread's attempts while Redis fails.

    All of a process share the log: one line when the first of them fails, and one when none fails
    any more. What one of them meets besides (a timeout after a lost connection, say) is the same
    outage's.

    Args:
        wait: Sleeps for the given seconds; may return early when the process is to stop.
    """

    _lock = threading.Lock()
    #: Those that fail now. Weakly: one that its thread gave up must not keep the outage going.
    _failing: ClassVar["WeakSet[Outage]"] = WeakSet()

    def __init__(self, wait: Callable[[float], object] = time.sleep) -> None:
        self._wait = wait
        self._failures = 0
        self._random = secrets.SystemRandom()

    def failed(self, error: Exception) -> None:
        """Note a failure and wait: exponentially longer, jittered so that workers spread."""
        with self._lock:
            is_first = not self._failing
            self._failing.add(self)
        if is_first:
            log.get().warning("redis.failed", problem=f"{type(error).__name__}: {error}")
        ceiling = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._wait(ceiling * self._random.uniform(0.5, 1.0))

    def recovered(self) -> None:
        """Note a success."""
        if not self._failures:
            return
        failures, self._failures = self._failures, 0
        with self._lock:
            self._failing.discard(self)
            is_last = not self._failing
        if is_last:
            log.get().info("redis.recovered", failures=failures)


def insist(call: Callable[[], T], outage: Outage, give_up: Callable[[], bool]) -> T:
    """Repeat `call` until Redis answers it.

    Raises:
        BrokerUnavailable: It failed and `give_up` said so.
        redis.ResponseError: Redis refuses this very call; repeating it is useless.
    """
    while True:
        try:
            result = call()
        except REDIS_ERRORS as error:
            if not is_outage(error):
                outage.recovered()  # it has answered
                raise
            if give_up():
                raise BrokerUnavailable(f"Redis failed: {error}") from error
            outage.failed(error)
        else:
            outage.recovered()
            return result


def run_pipelined(client: Any, queue: Callable[[Any], None]) -> list[Any]:
    """Run the calls that `queue` puts on a pipeline; return a reply or an exception for each.

    Raises:
        redis.RedisError: An outage, which passes: repeating all of it is for the caller's fences.
    """
    with client.pipeline(transaction=False) as pipe:
        queue(pipe)
        replies: list[Any] = pipe.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, redis.RedisError) and is_outage(reply):
            raise reply
    return replies


@dataclass(frozen=True, slots=True)
class Entry:
    """One delivered entry: where it lies, its id, and its fields as bytes."""

    stream: str
    entry_id: str
    fields: Mapping[bytes, bytes]


def is_count(value: bytes) -> bool:
    """Whether a field is a number that can be counted with, here and by Redis' scripts."""
    return value.isdigit() and len(value) < 16


class StreamReader:
    """Delivers new entries of some streams to one consumer. One thread at a time.

    Args:
        client: A connection to Redis.
        consumer: This consumer's name; never used by another process, so nothing is pending at
            first.
        streams: The streams to read, most urgent first.
        outage: Waits while Redis is away.
        holds: Whether the caller works on an entry of this stream and id already. Asked only after
            a failure, when pending entries are looked through.
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        streams: Sequence[str],
        *,
        outage: Outage,
        holds: Callable[[str, str], bool] = lambda stream, entry_id: False,
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._streams = tuple(streams)
        self._outage = outage
        self._holds = holds
        self._has_groups = False
        self._has_unseen = False

    def read(
        self, count: int, *, streams: Sequence[str] | None = None, block_ms: int | None = BLOCK_MS
    ) -> list[Entry]:
        """Return up to `count` new entries of each stream, waiting up to `block_ms` for the first.

        Never raises for an outage: it waits a little and returns nothing, and the next call tries
        again. A lost group is created anew. After a failure more than `count` may come, because
        everything delivered and never seen comes first.

        Args:
            count: At most this many entries of each stream; at least 1.
            streams: Which of the reader's streams to read now; all of them by default.
            block_ms: None does not wait; else at least 1, because Redis takes 0 for ever.

        Raises:
            redis.RedisError: Redis refuses the command itself.
        """
        wanted = self._streams if streams is None else streams
        try:
            entries = self._read(wanted, count, block_ms)
        except REDIS_ERRORS as error:
            if not is_outage(error):
                raise
            # the group may be gone, and a reply may have been lost on its way
            self._has_groups, self._has_unseen = False, True
            self._outage.failed(error)
            return []
        self._outage.recovered()
        return entries

    def _read(self, streams: Sequence[str], count: int, block_ms: int | None) -> list[Entry]:
        if not self._has_groups:
            ensure_groups(self._client, self._streams)
            self._has_groups = True
        if self._has_unseen:
            unseen = [entry for stream in self._streams for entry in self._unseen(stream)]
            self._has_unseen = False
            if unseen:
                return unseen
        return self._fetch(dict.fromkeys(streams, ">"), count, block_ms)

    def _unseen(self, stream: str) -> list[Entry]:
        unseen: list[Entry] = []
        last = "0"
        while pending := self._fetch({stream: last}, _RECOVER_COUNT, None):
            last = pending[-1].entry_id
            for entry in pending:
                if not entry.fields:  # deleted by somebody while it was pending
                    self._client.xack(stream, GROUP, entry.entry_id)
                elif not self._holds(stream, entry.entry_id):
                    unseen.append(entry)
        return unseen

    def _fetch(self, since: dict[str, str], count: int, block_ms: int | None) -> list[Entry]:
        replies = self._client.xreadgroup(GROUP, self._consumer, since, count, block_ms)
        return [
            Entry(stream.decode(), entry_id.decode(), fields)
            for stream, entries in replies
            for entry_id, fields in entries
        ]


def ensure_groups(client: Any, streams: Sequence[str]) -> None:
    """Create the workers' group on each stream, from its beginning; existing ones are left alone.

    Raises:
        redis.RedisError: Redis cannot or will not.
    """
    for stream in streams:
        try:
            client.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if is_out_of_memory(error) and _has_group(client, stream):
                continue  # it is refused before it is looked at
            if not str(error).startswith("BUSYGROUP"):
                raise


def _has_group(client: Any, stream: str) -> bool:
    try:
        groups = client.xinfo_groups(stream)
    except redis.ResponseError:  # no such stream
        return False
    return any(group["name"] == GROUP.encode() for group in groups)
