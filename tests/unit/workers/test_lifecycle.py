"""A worker's life: names, signs of life, and being asked to stop."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from docmill import scripts
from docmill.keys import Keys
from tests.support.wait import wait_until
from workers.lifecycle import Presence, Progress, consumer_name, wall_clock

ROOT = Path(__file__).resolve().parents[3]
KEYS = Keys("ns")


class FakePipeline:
    """Carries out commands at once."""

    def __init__(self, client: "FakeClient") -> None:
        self._client = client

    def __enter__(self) -> "FakePipeline":
        return self

    def __exit__(self, *error: object) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class FakeClient:
    """As much of Redis as a heartbeat needs."""

    def __init__(self) -> None:
        self.num_beats = 0
        self.ttl_ms = 0
        self.consumers: dict[str, Any] = {}
        self.is_away = False

    def pipeline(self, transaction: bool) -> FakePipeline:
        """Return a pipeline."""
        return FakePipeline(self)

    def register_script(self, source: str) -> Any:
        """Return the only script that a heartbeat runs."""
        assert source == scripts.source("beat")
        return self._beat

    def _beat(self, keys: list[str], args: list[Any], client: None) -> bytes:
        """Take a heartbeat."""
        if self.is_away:
            raise ConnectionError("away")
        consumer, self.ttl_ms, shown = args
        self.num_beats += 1
        self.consumers[consumer] = json.loads(shown)
        return b"OK"

    def delete(self, key: str) -> None:
        """Forget the heartbeat."""
        self.ttl_ms = 0

    def hdel(self, key: str, field: str) -> None:
        """Take a consumer off the list."""
        self.consumers.pop(field, None)

    def execute(self) -> None:
        """Do nothing: it is done."""


class FakeClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    """The progress' clock."""
    return FakeClock()


@pytest.fixture
def client() -> FakeClient:
    """What the heartbeat is sent to."""
    return FakeClient()


def _presence(client: FakeClient, clock: FakeClock, **options: Any) -> Presence:
    return Presence(
        client, KEYS, "c1", role="engine", ttl_s=0.03, progress=Progress(clock), **options
    )


def test_names_are_never_used_twice() -> None:
    """Two consumers of one process have different names, safe inside a key."""
    names = {consumer_name() for _ in range(100)}

    assert len(names) == 100
    assert not any(set(name) & set("{}: *") for name in names)


def test_a_worker_shows_itself(client: FakeClient, clock: FakeClock) -> None:
    """From the first moment it is listed with what it is; at the end no trace is left."""
    presence = _presence(client, clock)
    presence.enter(threading.Event())

    assert client.consumers["c1"]["state"] == "loading"
    assert client.ttl_ms == 30

    presence.announce("ready", model="m", model_version="v")
    shown = client.consumers["c1"]

    assert (shown["role"], shown["state"], shown["model"]) == ("engine", "ready", "m")
    assert abs(shown["started_at"] - wall_clock()) < 60

    presence.leave()

    assert client.consumers == {}
    assert client.ttl_ms == 0


def test_the_heartbeat_goes_on_by_itself(client: FakeClient, clock: FakeClock) -> None:
    """The worker's own thread has nothing to do with it, and an outage does not end it."""
    presence = _presence(client, clock)
    presence.enter(threading.Event())
    wait_until(lambda: client.num_beats > 3)
    client.is_away = True
    presence.announce("draining")
    client.is_away = False
    before = client.num_beats
    wait_until(lambda: client.num_beats > before)

    assert client.consumers["c1"]["state"] == "draining"

    presence.leave()


def test_a_stuck_worker_stops_its_heartbeat(client: FakeClient, clock: FakeClock) -> None:
    """Work that has not moved for too long ends the process, but loading may take its time."""
    hung = threading.Event()
    presence = _presence(client, clock, hang_limit_s=60, on_hang=hung.set)
    presence.enter(threading.Event())
    clock.now = 1000.0
    before = client.num_beats
    wait_until(lambda: client.num_beats > before + 1)

    assert not hung.is_set()

    presence.announce("ready")
    clock.now += 61

    assert hung.wait(5)

    presence.leave()


PROGRAM = """
import hashlib, sys
from workers.lifecycle import stop_on_signals
stop = stop_on_signals()
print("up", flush=True)
stop.wait()
print("stopping", flush=True)
if sys.argv[1] == "slow":  # a minute in C, where no signal handler runs
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**8)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_signal_asks_the_process_to_stop(number: signal.Signals) -> None:
    """The first signal only sets the flag; the process ends in its own time."""
    with _program("quick") as process:
        process.send_signal(number)

        assert process.wait(5) == 0


def test_a_second_signal_ends_the_process_at_once() -> None:
    """Who asks twice does not want to wait, not even for a computation to end."""
    with _program("slow") as process:
        process.send_signal(signal.SIGINT)

        assert process.stdout is not None
        assert process.stdout.readline() == b"stopping\n"

        process.send_signal(signal.SIGINT)

        assert process.wait(5) == 128 + signal.SIGINT


def _program(speed: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, speed], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process
