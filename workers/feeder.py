"""The engine worker's reading thread: ready streams into the window.

Decides how far ahead is read: little, because what one worker holds no other can take. May import
docmill and the shared modules in workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from docmill.errors import InvalidDocument, MessageError
from docmill.keys import TIERS
from workers import log
from workers.completion import Ending, Serving, Writer
from workers.leases import Lease, Window, open_entry
from workers.process import Process
from workers.streams import Entry, Outage, StreamReader

#: How long to wait for room while some streams have no room: also how late an interactive entry is
#: seen then.
_ROOM_WAIT_S = 0.05
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
        self._sources = {source.stream: source for source in served}
        self._window = window
        self._writer = writer
        self._serving = serving
        self._context_len = context_len
        self._reader = StreamReader(
            process.client,
            process.consumer,
            list(self._sources),
            outage=Outage(process.stop.wait),
            holds=window.holds,
        )

    def run(self) -> None:
        """Read until the process is to stop."""
        while not self._stop.is_set():
            self.feed()

    def feed(self) -> None:
        """Read once, where there is room."""
        wanted = self._wanted()
        is_open = len(wanted) == len(self._sources)
        if wanted:
            max_rows = self._window.limits.max_rows
            # blocking on some streams only would miss room that comes up for the others
            entries = (
                self._reader.read(max_rows)
                if is_open
                else self._reader.read(max_rows, streams=wanted, block_ms=None)
            )
            self._take(entries)
        if not is_open:
            self._window.wait_for_change(_ROOM_WAIT_S)

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
        """Decode an entry; one that cannot be used is ended instead."""
        ids: dict[str, Any] = {"stream": entry.stream, "entry_id": entry.entry_id}
        try:
            return open_entry(entry, self._context_len)
        except MessageError as error:
            log.get().warning("entry.buried", code=error.code, problem=error.message, **ids)
            body = self._serving.failure(error.code, error.message)
            self._writer.put(Ending(entry.stream, entry.entry_id, body, dead_reason=error.code))
        except InvalidDocument as error:
            log.get().warning("document.refused", code=error.reason, **ids)
            body = self._serving.failure(error.reason, error.message)
            self._writer.put(Ending(entry.stream, entry.entry_id, body))
        return None
