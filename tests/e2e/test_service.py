"""The service by itself, as a container or an init system runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import descendants, is_running
from tests.support.wait import wait_until


@contextmanager
def _service() -> Iterator["subprocess.Popen[str]"]:
    """Run `python -m workers.service` without a model, ready, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.service"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DOCMILL_ENGINE": "fake"},  # noqa: TID251 - as a shell would
    )
    assert process.stdout is not None
    try:
        while json.loads(process.stdout.readline())["event"] != "ready":
            pass
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_sigterm_ends_it_in_order() -> None:
    """Asked to stop, it ends its workers and its Redis, says so, and its status is 0."""
    with _service() as process:
        assert process.stdout is not None
        started = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        last = json.loads(process.stdout.readlines()[-1])

        assert process.wait(30) == 0
        assert last == {"event": "stopped"}
        assert not any(map(is_running, started))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_nothing_outlives_a_killed_service() -> None:
    """After SIGKILL neither a worker nor the Redis is left behind."""
    with _service() as process:
        started = descendants(process.pid)
        process.kill()

        assert len(started) >= 4
        wait_until(lambda: not any(map(is_running, started)), what="all processes end")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_the_end_of_its_own_redis_is_told_with_its_log() -> None:
    """When the embedded Redis dies, the last word says how, and where its log lies."""
    with _service() as process:
        assert process.stdout is not None
        (redis,) = (pid for pid in descendants(process.pid) if _runs_redis(pid))
        os.kill(redis, signal.SIGKILL)
        last = json.loads(process.stdout.readlines()[-1])

        assert process.wait(30) == 78
        assert (last["event"], last["code"]) == ("fatal", "broker_unavailable")
        assert "the embedded Redis ended with SIGKILL" in last["message"]
        assert "/redis.log: " in last["message"]


def _runs_redis(pid: int) -> bool:
    name = Path(f"/proc/{pid}/comm").read_text()
    return name.startswith(("redis-server", "valkey-server"))
