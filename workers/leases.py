"""The entries that an engine worker owns: decoded, and held until their result is written.

Decides what makes an entry unusable, and keeps what waits apart from what was taken to run; what
runs next is decided in workers.batching. Does no I/O but its log. May import docmill, engine.base,
workers.batching and workers.streams.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from docmill.errors import DecodeError
from docmill.wire import Header, Prepared
from engine.base import Row, Sampling
from workers import batching, log
from workers.batching import Batch, Limits, Waiting
from workers.streams import Entry, is_count

_FIELDS = frozenset((b"i", b"j", b"h", b"b", b"n", b"p", b"f"))


@dataclass(slots=True, eq=False)
class Lease:
    """A document that this worker may answer while it owns the entry.

    `fields`: the entry's, as bytes, without the prepared tokens. `began_at`: UNIX seconds when it
    was given to the engine, 0 before.
    """

    stream: str
    entry_id: str
    fields: Mapping[bytes, bytes]
    header: Header
    prepared: Prepared
    began_at: float = 0.0

    @property
    def row_id(self) -> str:
        """The entry's name inside the engine; unlike the request id, new at each delivery."""
        return f"{self.stream}/{self.entry_id}"

    @property
    def ids(self) -> dict[str, str]:
        """What a log line about it is bound to."""
        header = self.header
        return {
            "request_id": header.request_id,
            "job_id": header.job_id,
            "entry_id": self.entry_id,
        }

    @property
    def delivery_count(self) -> int:
        """How often the document was delivered, this time included."""
        return int(self.fields[b"n"])

    @property
    def num_tokens(self) -> int:
        """What it occupies in a batch: prompt plus output limit."""
        return self.prepared.prompt_len + self.prepared.max_tokens

    def named(self, fields: Iterable[bytes]) -> list[str | bytes]:
        """Return stream, entry id and these fields, as begin.lua and complete.lua want them."""
        return [self.stream, self.entry_id, *map(self.fields.__getitem__, fields)]

    def row(self) -> Row:
        """Return what the engine is given."""
        prepared = self.prepared
        sampling = Sampling(
            prepared.max_tokens,
            prepared.temperature,
            prepared.top_p,
            prepared.seed,
            prepared.stop,
        )
        prompt = np.frombuffer(prepared.tokens, dtype="<u4")
        return Row(self.row_id, prompt, sampling, prepared.prefix_len)


def open_entry(entry: Entry) -> Lease:
    """Decode a ready entry.

    Raises:
        DecodeError: It is no ready entry, or its records cannot be read.
        UnsupportedSchema: A record is of another version.
    """
    missing = _FIELDS - entry.fields.keys()
    if missing:
        names = ", ".join(sorted(name.decode() for name in missing))
        raise DecodeError(f"the entry lacks the fields {names}")
    fields = dict(entry.fields)
    if not (is_count(fields[b"b"]) and is_count(fields[b"n"])):
        raise DecodeError("the fields b and n are not numbers")
    prepared = Prepared.decode(fields.pop(b"p"))
    header = Header.decode(fields[b"h"])
    num_bytes = len(prepared.tokens)
    if num_bytes == 0 or num_bytes % 4:
        raise DecodeError(f"{num_bytes} bytes are not a prompt of 4-byte tokens")
    return Lease(entry.stream, entry.entry_id, fields, header, prepared)


def note_lost(leases: Sequence[Lease]) -> None:
    """Log that somebody else has these entries now: one line, however many went at once."""
    if leases:
        log.get().warning("lease.lost", count=len(leases), **leases[0].ids)


class Window:
    """All leases: those that wait, by bucket, and those taken to run. Thread-safe.

    Args:
        limits: What a batch may hold.
        clock: Monotonic seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[int, dict[Waiting[Lease], None]] = {}
        self._held: dict[tuple[str, str], Lease] = {}
        self._depths: Counter[tuple[int, int]] = Counter()
        self._passes = 0
        self._num_taken = 0
        self._idle_since: float | None = None

    def add(self, bucket: int, rank: int, leases: Iterable[Lease]) -> None:
        """Let leases wait in a bucket; `rank` 0 is the interactive tier."""
        now = self._clock()
        with self._changed:
            for lease in leases:
                prompt_len, is_suspect = lease.prepared.prompt_len, lease.delivery_count > 1
                row = Waiting(lease, rank, prompt_len, lease.num_tokens, now, is_suspect)
                self._put(bucket, row)
                self._held[lease.stream, lease.entry_id] = lease
            self._changed.notify_all()

    def next_batch(self, timeout_s: float) -> Batch[Lease] | None:
        """Take the rows that run next, waiting up to `timeout_s` for a bucket to be due.

        Called when the engine has nothing to do: from the first such call on it is idle.
        """
        now = self._clock()
        give_up_at = now + timeout_s
        with self._changed:
            idle_since = self._idle_since = now if self._idle_since is None else self._idle_since
            while True:
                now = self._clock()
                turn = batching.next_turn(self._waiting, now, self.limits, self._passes, idle_since)
                if turn.batch is not None:
                    self._passes, self._idle_since = turn.passes, None
                    self._take(turn.batch.bucket, turn.batch.rows)
                    return turn.batch
                left_s = give_up_at - now
                if left_s <= 0:
                    return None
                self._changed.wait(min(left_s, turn.wait_s or left_s))

    def refill(
        self, bucket: int, *, num_rows: int, num_tokens: int, num_served: int
    ) -> tuple[Waiting[Lease], ...]:
        """Take rows that join a running batch of `num_rows` rows and `num_tokens` tokens."""
        room = batching.reduced(self.limits, num_rows, num_tokens)
        with self._changed:
            rows = batching.refill(
                self._waiting, bucket, room, num_served, max_rows=self.limits.max_rows
            )
            self._take(bucket, rows)
        return rows

    def put_back(self, bucket: int, rows: Iterable[Waiting[Lease]]) -> None:
        """Let rows wait again that were taken and could not be started."""
        with self._changed:
            for row in rows:
                self._put(bucket, row)

    def take_waiting(self) -> list[Lease]:
        """Take everything that waits, to hand it back."""
        with self._changed:
            leases = [row.item for rows in self._waiting.values() for row in rows]
            self._waiting.clear()
            self._depths.clear()
        return leases

    def release(self, names: Iterable[tuple[str, str]]) -> None:
        """Forget leases, by stream and entry id: written, or somebody else's now."""
        with self._changed:
            for name in names:
                self._held.pop(name, None)

    def holds(self, stream: str, entry_id: str) -> bool:
        """Whether the entry is held here, waiting or not."""
        return (stream, entry_id) in self._held

    def held(self) -> list[Lease]:
        """Return every lease, waiting or not."""
        with self._changed:
            return list(self._held.values())

    def num_held(self) -> int:
        """Return how many leases there are, waiting or not."""
        return len(self._held)

    def num_out(self) -> int:
        """Return how many leases are neither waiting nor released: running, or being written."""
        with self._changed:
            return len(self._held) - sum(map(len, self._waiting.values()))

    def depth(self, bucket: int, rank: int) -> int:
        """Return how many rows of one tier wait in a bucket."""
        return self._depths[bucket, rank]

    @property
    def num_taken(self) -> int:
        """How often rows have been taken to run."""
        return self._num_taken

    def wait_until_taken(self, num_taken: int, timeout_s: float) -> None:
        """Sleep while `num_taken` is what it was, at most `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_taken != num_taken, timeout_s)

    def _put(self, bucket: int, row: Waiting[Lease]) -> None:
        self._waiting.setdefault(bucket, {})[row] = None
        self._depths[bucket, row.rank] += 1

    def _take(self, bucket: int, rows: Iterable[Waiting[Lease]]) -> None:
        self._num_taken += 1
        for row in rows:
            del self._waiting[bucket][row]
            self._depths[bucket, row.rank] -= 1
        self._changed.notify_all()
