"""The runs of bench/queue.py: one side, one fresh Redis, one measurement.

Decides how a rate and a latency are taken, the same way for every side. May import redis and
workers.redis_server.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench.cpu import redis_cpu_s, session_cpu_s
from bench.report import ROOT
from bench.sides import Side, num_results
from workers.redis_server import start_embedded

#: Keys beside the results that a peer may drop while it works: the end is seen that much early.
_OTHER_KEYS = 4
_POLL_S = 0.01
_PATIENCE_S = 120.0
#: Results of an idle run that only warm up.
_WARM = 10
#: What Redis tells of: strings, lists and streams that are written.
_EVENTS = "K$lt"
_WRITTEN = (b"set", b"lpush", b"xadd")


@dataclass(frozen=True, slots=True)
class Rate:
    """Documents/s, and microseconds of processor time a document took: in the side, in Redis."""

    docs_per_s: float
    side_us: float
    redis_us: float


@contextmanager
def fresh_redis() -> Iterator[tuple[str, Any]]:
    """Run a Redis of its own; yields its URL and a client."""
    with tempfile.TemporaryDirectory(prefix="dm-bench-") as directory:
        server = start_embedded(Path(directory))
        client = redis.Redis.from_url(server.url)
        # a rewrite of the file would fall into some runs and not into others
        client.config_set("auto-aof-rewrite-percentage", 0)
        try:
            yield server.url, client
        finally:
            client.close()
            server.stop()


def measure_enqueue(side: Side, url: str, client: Any, count: int) -> Rate:
    """Fill the side's queue."""
    redis_before = redis_cpu_s(client)
    sent = json.loads(_finish(_send(side, url, count)))
    redis_us = (redis_cpu_s(client) - redis_before) * 1e6 / count
    return Rate(sent["docs_per_s"], sent["cpu_us"], redis_us)


def measure_hop(side: Side, url: str, client: Any, count: int) -> Rate:
    """Let the side's worker answer the `count` documents that wait for it."""
    filled = side.progress(client)
    with _worker(side, url) as worker:
        first = _wait(worker, lambda: side.progress(client) - filled, count // 10)
        side_before, redis_before = session_cpu_s(worker.pid), redis_cpu_s(client)
        last = _wait(worker, lambda: side.progress(client) - filled, count - _OTHER_KEYS)
        num_docs, seconds = last[0] - first[0], last[1] - first[1]
        side_us = (session_cpu_s(worker.pid) - side_before) * 1e6 / num_docs
        redis_us = (redis_cpu_s(client) - redis_before) * 1e6 / num_docs
        _wait(worker, lambda: num_results(client, side), count, poll_s=0.2)
    return Rate(num_docs / seconds, side_us, redis_us)


def measure_latency(side: Side, url: str, client: Any, count: int, rate: float) -> float:
    """Send documents one by one to an idle worker; return the median milliseconds to a result."""
    client.config_set("notify-keyspace-events", _EVENTS)
    with _worker(side, url) as worker, client.pubsub() as told:
        told.psubscribe(f"__keyspace@0__:{side.results}")
        sender = _send(side, url, count + _WARM, rate)
        seen_at: list[float] = []
        give_up_at = time.monotonic() + _PATIENCE_S
        while len(seen_at) < count + _WARM:
            message = told.get_message(timeout=1.0)
            if message and message["type"] == "pmessage" and message["data"] in _WRITTEN:
                seen_at.append(time.monotonic())
            _check(worker, give_up_at)
        sent_at: list[float] = json.loads(_finish(sender))["sent_at"]
    # no side answers out of turn at this rate, except by accident, which no median sees
    waits = [seen - sent for seen, sent in zip(seen_at, sent_at, strict=True)]
    return statistics.median(waits[_WARM:]) * 1000


def _wait(
    worker: "subprocess.Popen[bytes]", ask: Any, least: int, poll_s: float = _POLL_S
) -> tuple[int, float]:
    """Wait until the answer is at least that; return it, and when it was given."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        answer, now = int(ask()), time.monotonic()
        if answer >= least:
            return answer, now
        _check(worker, give_up_at)
        time.sleep(poll_s)


def _check(worker: "subprocess.Popen[bytes]", give_up_at: float) -> None:
    if worker.poll() is not None:
        raise SystemExit(f"the worker {worker.args!r} ended with status {worker.returncode}")
    if time.monotonic() > give_up_at:
        raise SystemExit(f"the worker {worker.args!r} has not finished in {_PATIENCE_S} s")


def _send(side: Side, url: str, count: int, rate: float | None = None) -> "subprocess.Popen[bytes]":
    command = [*side.command, url, "send", "--count", str(count)]
    if rate is not None:
        command += ["--rate", str(rate)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def _finish(sender: "subprocess.Popen[bytes]") -> bytes:
    shown, _ = sender.communicate(timeout=_PATIENCE_S)
    if sender.returncode:
        raise SystemExit(f"the sender {sender.args!r} failed")
    return shown


@contextmanager
def _worker(side: Side, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the side's worker in a session of its own, which ends with the block."""
    variables = {"DOCMILL_REDIS_URL": url, **dict(side.settings)}
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(
            [*side.command, url, "work"],
            cwd=ROOT,
            env=os.environ | variables,  # noqa: TID251 - a child inherits the bench's environment
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield worker
        except SystemExit:
            log.seek(0)
            print(log.read().decode(errors="replace")[-2000:], flush=True)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
