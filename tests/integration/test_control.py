"""The control process: what is regular happens, within one namespace and through outages."""

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docmill.connection import connect
from docmill.keys import Keys
from tests.support.engine_workers import make_process
from tests.support.processes import running
from tests.support.wait import wait_until
from workers import control
from workers.arq_connection import arq_redis
from workers.process import Process
from workers.redis_server import start_embedded


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a Redis of the test's own, with a name short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dm-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def process(redis_url: str, keys: Keys) -> Iterator[Process]:
    """A control process' surroundings, with limits of its own."""
    process = make_process(
        "control", redis_url, keys, backlog_max_docs=12, backlog_max_bytes=3456, heartbeat_ttl_s=0.5
    )
    yield process
    process.client.close()


class Work:
    """Runs the control work in a thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.thread = threading.Thread(target=control.work, args=(process,), daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *error: object) -> None:
        self._process.stop.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


def test_limits_are_written_at_the_start(process: Process, redis_client: Any, keys: Keys) -> None:
    """What the operator set is where submit.lua looks."""
    with Work(process):
        wait_until(lambda: redis_client.hlen(keys.backlog) == 2)

    assert redis_client.hgetall(keys.backlog) == {b"max_docs": b"12", b"max_bytes": b"3456"}
    assert redis_client.get(keys.shards) == b"1"


def test_lost_limits_are_written_again(process: Process, redis_client: Any, keys: Keys) -> None:
    """After Redis has lost its data the operator's limits hold again."""
    with Work(process):
        wait_until(lambda: redis_client.hlen(keys.backlog) == 2)
        redis_client.delete(keys.backlog)
        wait_until(lambda: redis_client.hlen(keys.backlog) == 2)

    assert redis_client.hgetall(keys.backlog) == {b"max_docs": b"12", b"max_bytes": b"3456"}


def test_the_reaper_runs(process: Process, redis_client: Any, keys: Keys) -> None:
    """A consumer without a heartbeat is gone soon, and this process is not."""
    process.presence.enter(process.stop)
    redis_client.hset(keys.consumers, "gone", "{}")
    with Work(process):
        wait_until(lambda: not redis_client.hexists(keys.consumers, "gone"))

        # a slow machine may miss a beat of half a second; the next one shows it again
        wait_until(lambda: redis_client.hexists(keys.consumers, process.consumer))

    process.presence.leave()


def test_two_namespaces_do_not_meet(
    process: Process, redis_url: str, redis_client: Any, keys: Keys
) -> None:
    """Control processes of two installations on one Redis each do their own rounds."""
    other_keys = Keys(f"{keys.namespace}-2")
    other = make_process("control", redis_url, other_keys, heartbeat_ttl_s=0.5)
    for one in (keys, other_keys):
        redis_client.hset(one.consumers, "gone", "{}")
    with Work(process), Work(other):
        wait_until(lambda: not redis_client.hexists(keys.consumers, "gone"))
        wait_until(lambda: not redis_client.hexists(other_keys.consumers, "gone"))

    other.client.close()


def test_arqs_keys_lie_in_the_shard(process: Process, redis_client: Any, keys: Keys) -> None:
    """Every key that arq makes has the shard's prefix, and all but its queues go by themselves."""
    mine = f"{keys.prefix}:arq:*"
    with Work(process):
        wait_until(lambda: list(redis_client.scan_iter(f"{keys.prefix}:arq:in-progress:*")))
        found = list(redis_client.scan_iter(mine))

    assert any(key.endswith(b":arq:queue") for key in found)
    assert not list(redis_client.scan_iter("arq:*"))
    queues = (b":arq:queue", b":arq:tasks")
    assert all(redis_client.ttl(key) != -1 for key in found if not key.endswith(queues))


def test_a_restart_of_redis_is_survived(folder: Path, keys: Keys) -> None:
    """The worker of arq ends with its connection; the process starts another and goes on."""
    server = start_embedded(folder)
    process = make_process("control", server.url, keys, heartbeat_ttl_s=0.5)
    client = connect(server.url)
    with Work(process):
        wait_until(lambda: client.hlen(keys.backlog) == 2)
        server.stop()
        server = start_embedded(folder)
        client.hset(keys.consumers, "gone", "{}")
        wait_until(lambda: not client.hexists(keys.consumers, "gone"))

    process.client.close()
    client.close()
    server.stop()


def test_sigterm_ends_the_process_cleanly(redis_url: str, redis_client: Any, keys: Keys) -> None:
    """The process says that it is ready, and leaves no trace of itself when it is asked to stop."""
    with running("workers.control", redis_url=redis_url, namespace=keys.namespace) as process:
        wait_until(lambda: b'"ready"' in b"".join(redis_client.hvals(keys.consumers)))
        process.send_signal(signal.SIGTERM)

        assert process.wait(5) == 0

    assert redis_client.hlen(keys.consumers) == 0


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://u:p@h:1/2", {"host": "h", "port": 1, "db": 2, "username": "u", "password": "p"}),
        ("rediss://h:1/0?ssl_ca_certs=/ca", {"host": "h", "port": 1, "db": 0}),
        ("unix:///tmp/x.sock?db=1", {"path": "/tmp/x.sock", "db": 1}),
    ],
    ids=["plain", "tls", "unix"],
)
def test_arq_connects_by_the_same_urls(url: str, expected: dict[str, Any]) -> None:
    """Every form of URL that docmill takes becomes arq's connection, with our parameters."""
    parameters = arq_redis(url, "queue").connection_pool.connection_kwargs

    assert {name: parameters[name] for name in expected} == expected
    assert parameters["socket_timeout"] == 30.0
