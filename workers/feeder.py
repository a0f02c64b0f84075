"""The engine worker's reading thread: ready streams into the window.

Decides how far ahead is read: little, because what one worker holds no other can take. May import
docmill and the shared modules in workers.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import redis

from docmill.errors import BrokerUnavailable, MessageError, Reason
from docmill.keys import GROUP, TIERS
from docmill.scripts import Scripts
from workers import log
from workers.completion import Serving, Writer
from workers.leases import Lease, Window, open_entry
from workers.process import Process
from workers.retry import GiveUp, Trouble, trouble
from workers.streams import Entry, Outage, StreamReader, insist

#: How long to wait for room while some streams have no room: also how late an interactive entry is
#: seen then.
_ROOM_WAIT_S = 0.05
#: After a read that came soon after the one before and found few: entries that come in quick
#: succession share the next, and a lone one never waits.
_PAUSE_S = 0.005
#: Rows held at most, in full batches: bounds what piles up while Redis takes no results.
_MAX_HELD_BATCHES = 16


@dataclass(frozen=True, slots=True)
class Source:
    """A ready stream and where its rows wait."""

    stream: str
    bucket: int
    rank: int


def sources(process: Process, model_version: str, num_buckets: int) -> list[Source]:
    """Return the model version's ready streams, the interactive tier first."""
    return [
        Source(process.keys.ready(model_version, tier, bucket), bucket, rank)
        for rank, tier in enumerate(TIERS)
        for bucket in range(num_buckets)
    ]


class Feeder:
    """Keeps up to two batches of each stream in the window.

    Args:
        process: The process this runs in.
        served: The streams to read.
        window: Where rows wait.
        writer: Ends entries that cannot be used.
        serving: What answers; goes into their results.
        context_len: The engine's.
    """

    def __init__(
        self,
        process: Process,
        served: Sequence[Source],
        window: Window,
        writer: Writer,
        serving: Serving,
        context_len: int,
    ) -> None:
        self._stop = process.stop
        self._consumer = process.consumer
        self._scripts = Scripts(process.client, process.keys.prefix)
        self._outage = Outage(process.stop.wait)
        self._sources = {source.stream: source for source in served}
        self._window = window
        self._writer = writer
        self._serving = serving
        self._context_len = context_len
        self._read_at = 0.0
        self._reader = StreamReader(
            process.client,
            process.consumer,
            list(self._sources),
            outage=self._outage,
            holds=window.holds,
        )

    def run(self) -> None:
        """Read until the process is to stop."""
        while not self._stop.is_set():
            self.feed()

    def feed(self) -> None:
        """Read once, where there is room; wait a little for it where there is none."""
        num_taken = self._window.num_taken
        wanted = self._wanted()
        if len(wanted) < len(self._sources):
            self._window.wait_until_taken(num_taken, _ROOM_WAIT_S)
            wanted = self._wanted()
        if not wanted:
            return
        max_rows = self._window.limits.max_rows
        # blocking on some streams only would miss room that comes up for the others
        is_open = len(wanted) == len(self._sources)
        entries = (
            self._reader.read(max_rows)
            if is_open
            else self._reader.read(max_rows, streams=wanted, block_ms=None)
        )
        self._take(entries)
        if entries:
            self._pace(is_full=len(entries) >= max_rows)

    def _pace(self, *, is_full: bool) -> None:
        is_hot = time.monotonic() - self._read_at < 2 * _PAUSE_S
        if is_hot and not is_full:
            self._stop.wait(_PAUSE_S)
        self._read_at = time.monotonic()

    def _wanted(self) -> list[str]:
        max_rows = self._window.limits.max_rows
        if self._window.num_held() >= _MAX_HELD_BATCHES * max_rows:
            return []
        return [
            source.stream
            for source in self._sources.values()
            if self._window.depth(source.bucket, source.rank) < max_rows
        ]

    def _take(self, entries: Sequence[Entry]) -> None:
        for stream, group in groupby(entries, key=lambda entry: entry.stream):
            source = self._sources[stream]
            leases = [lease for lease in map(self._open, group) if lease is not None]
            self._window.add(source.bucket, source.rank, leases)

    def _open(self, entry: Entry) -> Lease | None:
        """Decode an entry; one that can never be answered is ended instead."""
        try:
            lease = open_entry(entry)
        except MessageError as error:
            self._bury(entry, error)
            return None
        if lease.num_tokens <= self._context_len:
            return lease
        message = (
            f"{lease.prepared.prompt_len} prompt tokens and up to {lease.prepared.max_tokens} "
            f"output tokens exceed the engine's {self._context_len}"
        )
        log.get().warning("document.refused", problem=message, **lease.ids)
        found = Trouble(Reason.TOO_LONG, message, is_retryable=False)
        self._writer.put(self._serving.failure(lease, found, GiveUp(found.code, message)))
        return None

    def _bury(self, entry: Entry, error: MessageError) -> None:
        """Give up an entry that cannot be read."""
        found = trouble(error)
        log.get().warning(
            "entry.buried",
            stream=entry.stream,
            entry_id=entry.entry_id,
            code=error.code,
            problem=found.message,
            trace=found.trace,
        )
        body = self._serving.refusal(error.code, error.message).encode()
        owned = (entry.stream, GROUP, self._consumer, entry.entry_id)
        told = (error.code, body, found.message, found.trace)
        try:
            insist(
                lambda: self._scripts.call("bury", *owned, *told),
                self._outage,
                self._stop.is_set,
            )
        except BrokerUnavailable:
            return  # the reaper hands it back once this consumer is gone
        except redis.ResponseError as problem:  # one entry must not end the reading of all others
            log.get().error("entry.failed", entry_id=entry.entry_id, problem=str(problem))
