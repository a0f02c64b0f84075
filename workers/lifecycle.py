"""A worker's life: its name, its heartbeat, and how it is asked to stop.

Decides when a worker counts as alive: while its process runs *and* its work moves. Knows nothing of
what the work is. May import docmill, workers.log and workers.streams.
"""

import json
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from docmill.connection import REDIS_ERRORS
from docmill.errors import BrokerUnavailable
from docmill.keys import Keys
from docmill.scripts import Scripts
from workers import log
from workers.streams import Outage, insist

State = Literal["loading", "ready", "draining"]

_STOPPING = (signal.SIGTERM, signal.SIGINT)

#: Work that has not moved for this long is stuck. There is a sign of life before each pass of the
#: model, which takes a minute on two CPU cores and a large model.
HANG_LIMIT_S = 900.0
#: EX_SOFTWARE: ended by itself because of a fault inside; a supervisor may start it again.
EXIT_FAULT = 70
#: EX_TEMPFAIL: ended as asked, but Redis could not be told; the reaper hands back what was held.
EXIT_LEFT = 75
#: How soon a failed heartbeat is tried again: well inside the reaper's confirmation time, so that
#: live workers are back before it judges after a restart of Redis.
_RETRY_S = 0.25


def wall_clock() -> float:
    """Return UNIX seconds; the clock to pass where a moment is needed."""
    return datetime.now(UTC).timestamp()


def consumer_name() -> str:
    """Return a name no other consumer has had or will have: host-pid-nonce."""
    host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:64]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM or SIGINT sets; the second of them ends the process at once.

    Must be called in the main thread.
    """
    stop = threading.Event()
    wakeup, write_end = os.pipe()
    os.set_blocking(write_end, False)
    # the byte is written when the signal comes, whatever the main thread does then: a handler runs
    # only once that is back in Python, which a long computation or a wait that just begins puts off
    signal.set_wakeup_fd(write_end)
    for number in _STOPPING:
        signal.signal(number, lambda number, frame: None)

    def caught() -> int:
        while (number := os.read(wakeup, 1)[0]) not in _STOPPING:
            pass
        return number

    def listen() -> None:
        caught()
        stop.set()
        os._exit(128 + caught())

    threading.Thread(target=listen, name="signals", daemon=True).start()
    return stop


class Progress:
    """Says when the work last moved. `touch` is cheap and may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._touched_at = clock()

    def touch(self) -> None:
        """Say that the work moves."""
        self._touched_at = self._clock()

    def stalled_s(self) -> float:
        """Return the seconds since the last touch."""
        return self._clock() - self._touched_at


def end_at_once() -> None:
    """End the process without waiting for its threads; the reaper hands its entries back."""
    os._exit(EXIT_FAULT)


def vital_thread(name: str, target: Callable[[], object]) -> threading.Thread:
    """Return a thread without which the process is useless: an exception in it ends the process."""

    def run() -> None:
        try:
            target()
        except Exception:  # noqa: BLE001 - whatever it is, the process must not go on without it
            log.get().exception("thread.failed", thread=name)
            end_at_once()

    return threading.Thread(target=run, name=name, daemon=True)


class Presence:
    """Shows the worker as alive in Redis, from a thread of its own, until `leave`.

    Args:
        client: A connection to Redis; may be shared with other threads.
        keys: The shard's keys.
        consumer: The worker's consumer name.
        role: What it does: `preprocess`, `engine` or `control`.
        ttl_s: How long it counts as alive after a heartbeat; renewed three times as often.
        progress: Touched by the work. Stalled for `hang_limit_s`, the worker is taken for stuck,
            except while it loads: `on_hang` is called, and no heartbeat is sent any more.
        hang_limit_s: See `progress`.
        on_hang: Ends the process by default, so that a supervisor starts another.
    """

    def __init__(
        self,
        client: Any,
        keys: Keys,
        consumer: str,
        *,
        role: str,
        ttl_s: float,
        progress: Progress,
        hang_limit_s: float = HANG_LIMIT_S,
        on_hang: Callable[[], object] = end_at_once,
    ) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.prefix)
        self._consumer = consumer
        self._ttl_s = ttl_s
        self._progress = progress
        self._hang_limit_s = hang_limit_s
        self._on_hang = on_hang
        self._leaving = threading.Event()
        self._thread = vital_thread("heartbeat", self._renew)
        self._shown: dict[str, Any] = {
            "role": role,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "state": "loading",
            "model": None,
            "model_version": None,
            "started_at": round(wall_clock(), 3),
        }

    def enter(self, stop: threading.Event) -> None:
        """Send the first heartbeat, waiting for Redis if need be, and keep it up from now on.

        Must come before the first read: a consumer without a heartbeat is taken for dead.

        Raises:
            BrokerUnavailable: `stop` was set before Redis answered.
        """
        insist(self._beat, Outage(stop.wait), stop.is_set)
        self._thread.start()

    def announce(self, state: State, **shown: Any) -> None:
        """Show another state, and what else changed (`model`, `model_version`); sent soon."""
        self._progress.touch()
        self._shown = self._shown | shown | {"state": state}
        try:
            self._beat()
        except REDIS_ERRORS:
            return  # the thread sends it once Redis is back, and logs the outage

    def leave(self) -> None:
        """Stop the heartbeat and take the worker off the list, if Redis can be told."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            with self._client.pipeline(transaction=False) as pipe:
                pipe.delete(self._keys.heartbeat(self._consumer))
                pipe.hdel(self._keys.consumers, self._consumer)
                pipe.execute()
        except REDIS_ERRORS as error:
            log.get().warning("consumer.left_unsaid", problem=str(error))

    def _beat(self) -> None:
        ttl_ms = int(self._ttl_s * 1000)
        self._scripts.call("beat", self._consumer, ttl_ms, json.dumps(self._shown))

    def _renew(self) -> None:
        outage = Outage(lambda delay_s: self._leaving.wait(min(delay_s, _RETRY_S)))
        # a third of the lifetime: leaves two failed renewals before it lapses
        while not self._leaving.wait(self._ttl_s / 3):
            if self._is_hung():
                log.get().error("worker.hung", stalled_s=round(self._progress.stalled_s(), 1))
                self._on_hang()
                return
            try:
                insist(self._beat, outage, self._leaving.is_set)
            except BrokerUnavailable:
                return
            except REDIS_ERRORS as error:
                outage.failed(error)

    def _is_hung(self) -> bool:
        return self._shown["state"] != "loading" and self._progress.stalled_s() > self._hang_limit_s
