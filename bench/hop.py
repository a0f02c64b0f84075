"""docmill's own sides of bench/queue.py, and the bare loop beside them: `python -m bench.hop`.

- `queue`: docmill's queue without its engine worker: the reader that survives outages, begin,
  complete and a heartbeat, 64 at a time. What is sent lies in the ready stream, as a preprocessing
  worker leaves it: 8 KB of tokens, not decoded here.
- `worker`: one engine worker on the same, whole and real, with an engine that costs nothing:
  decoding, batching, rows and events come on top.
- `client`: `Client.submit` from one process; nobody works.
- `bare`: what Redis and the driver alone can do: XREADGROUP of 64, then their results and one XACK
  in one MULTI. No ownership, counters, duplicates or heartbeats. `bare_xdel` deletes as well.

May import docmill, workers, engine and redis.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import redis

from bench.peers.base import DOCUMENT_BYTES, RESULT, documents, main
from bench.shard import Shard, Taken
from docmill import Client
from docmill.connection import connect
from docmill.keys import Keys
from engine.base import Capacity, Engine, Event, Refill, Row, RowDone, Step
from engine.fake import FakeEngine
from workers.engine_worker import work
from workers.models import ModelFiles
from workers.process import Process, run
from workers.settings import Settings
from workers.streams import Outage, StreamReader

JOB = "bench"
CHUNK = 64
#: Documents laid out in the intake for those that are made ready one at a time.
LAID_OUT = 1024


class NoEngine(FakeEngine):
    """Answers every row with the result that the peers' tasks return, without looking at it."""

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer rows wave by wave; see `engine.base.Engine.run`."""
        wave, max_rows = rows, self.capacity().max_rows
        while wave:
            for row in wave:
                yield RowDone(row.row_id, RESULT, (), "stop", 1)
            if step is not None:
                step()
            wave = refill(max_rows) if refill is not None else ()


class Worker:
    """One hop: ready stream, engine worker, result; see `bench.peers.base.Side`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def work(self) -> None:
        """Be the engine worker; it is configured by the environment, as always."""
        sys.setswitchinterval(0.0005)  # as workers.engine_worker does
        run("engine", lambda process: work(process, _engine))

    def send_all(self, documents: Iterator[str]) -> None:
        """Fill the ready stream."""
        shard = self._shard()
        for number in count():
            if not (chunk := list(islice(documents, CHUNK))):
                return
            _submit(shard, chunk, f"{len(chunk)}.{number}")
            shard.prepare(shard.take(shard.intake, CHUNK), DOCUMENT_BYTES // 4)

    def sender(self) -> Callable[[str], None]:
        """Return what makes one document ready."""
        shard = self._shard()
        chunks = documents(LAID_OUT)
        for number in range(LAID_OUT // CHUNK):
            _submit(shard, list(islice(chunks, CHUNK)), str(number))
        taken = iter(shard.take(shard.intake, LAID_OUT))
        return lambda document: shard.prepare([next(taken)], DOCUMENT_BYTES // 4)

    def _shard(self) -> Shard:
        shard = Shard(connect(self._url), Keys())
        shard.open(JOB)
        return shard


class Queue(Worker):
    """One hop: ready stream, begin and complete, result; see `bench.peers.base.Side`."""

    def work(self) -> None:
        """Be a consumer with every guarantee, and nothing to do; configured by the environment."""
        run("engine", _consume)


def _consume(process: Process) -> None:
    shard = Shard(process.client, process.keys, consumer=process.consumer)
    reader = StreamReader(
        process.client, process.consumer, [shard.ready], outage=Outage(process.pause)
    )
    while not process.stop.is_set():
        process.progress.touch()
        read = reader.read(CHUNK)
        entries = [Taken(one.stream, one.entry_id, one.fields) for one in read]
        if entries:
            shard.begin(entries)
            shard.complete(entries, RESULT)


def _submit(shard: Shard, chunk: Sequence[str], name: str) -> None:
    ids = [f"{name}-{at}" for at in range(len(chunk))]
    shard.submit(JOB, ids, [document.encode() for document in chunk])


def _engine(settings: Settings, files: ModelFiles) -> Engine:
    capacity = Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens)
    return NoEngine(files.name, capacity=capacity)


class Submitter:
    """The client; see `bench.peers.base.Side`."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)

    def work(self) -> None:
        """Nobody works."""
        threading.Event().wait()

    def send_all(self, documents: Iterator[str]) -> None:
        """Submit documents as one job."""
        self._client.submit(documents, prompt="Sum up.")

    def sender(self) -> Callable[[str], None]:
        """Return what submits one document as a job of its own."""
        return lambda document: self.send_all(iter([document]))


class Bare:
    """The bare loop; see `bench.peers.base.Side`."""

    STREAM, RESULTS, GROUP = "bare", "bare:results", "bare"

    def __init__(self, url: str, *, deletes: bool = False) -> None:
        self._client: Any = redis.Redis.from_url(url)
        self._deletes = deletes

    def work(self) -> None:
        """See `Side.work`."""
        self._create_group()
        while True:
            for _, entries in self._client.xreadgroup(
                self.GROUP, "bare-1", {self.STREAM: ">"}, count=CHUNK, block=1000
            ):
                self._end([entry_id for entry_id, _ in entries])

    def _end(self, ids: Sequence[bytes]) -> None:
        with self._client.pipeline(transaction=True) as pipe:
            for entry_id in ids:
                pipe.xadd(self.RESULTS, {"i": entry_id, "b": RESULT})
            pipe.xack(self.STREAM, self.GROUP, *ids)
            if self._deletes:
                pipe.xdel(self.STREAM, *ids)
            pipe.execute()

    def send_all(self, documents: Iterator[str]) -> None:
        """See `Side.send_all`."""
        self._create_group()
        while chunk := list(islice(documents, CHUNK)):
            with self._client.pipeline(transaction=False) as pipe:
                for document in chunk:
                    pipe.xadd(self.STREAM, {"d": document})
                pipe.execute()

    def sender(self) -> Callable[[str], None]:
        """See `Side.sender`."""
        self._create_group()
        return lambda document: self._client.xadd(self.STREAM, {"d": document})

    def _create_group(self) -> None:
        with contextlib.suppress(redis.ResponseError):  # it is there already
            self._client.xgroup_create(self.STREAM, self.GROUP, id="0", mkstream=True)


if __name__ == "__main__":
    main(
        {
            "queue": Queue,
            "worker": Worker,
            "client": Submitter,
            "bare": Bare,
            "bare_xdel": lambda url: Bare(url, deletes=True),
        },
        "python -m bench.hop",
    )
