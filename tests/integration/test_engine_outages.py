"""The engine worker: lost leases, stops and restarts, of its own and of Redis, lose nothing."""

import json
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docmill.connection import connect
from docmill.keys import GROUP, Keys
from engine.fake import FakeEngine
from tests.support.engine_workers import (
    GatedEngine,
    serving,
    wait_for_results,
)
from tests.support.processes import running
from tests.support.ready_documents import Documents
from tests.support.wait import wait_until
from workers import engine_worker
from workers.lifecycle import EXIT_LEFT
from workers.redis_server import start_embedded


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test."""
    return Documents(redis_client, keys)


@pytest.fixture
def redis_folder() -> Iterator[Path]:
    """A folder for a Redis of the test's own, with a name short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dm-test-"))
    yield folder
    shutil.rmtree(folder)


def _shown(client: Any, keys: Keys) -> list[bytes]:
    shown: list[bytes] = client.hvals(keys.consumers)
    return shown


def test_an_answer_after_the_lease_was_lost_is_dropped(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """What was handed to another worker meanwhile is answered by that one only."""
    documents.put(["a"])
    engine = GatedEngine()
    with serving(engine, redis_url, keys) as process:
        assert engine.started.wait(5)

        (pending,) = documents.client.xpending_range(documents.ready(), GROUP, "-", "+", 10)
        owned = (documents.ready(), GROUP, process.consumer, pending["message_id"])
        documents.scripts.call("redeliver", *owned, 1, 5, 0, "", b"", "", "", "", "")
        engine.gate.set()
        wait_for_results(documents, 1)
        wait_until(lambda: documents.client.xlen(documents.ready()) == 0)

    assert documents.counts() == {"submitted": 1, "succeeded": 1}


def test_a_burst_of_lost_leases_is_one_line(
    documents: Documents, redis_url: str, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who slept until everything was given away says so once, with a count."""
    documents.put([f"d{number}" for number in range(20)])
    engine = GatedEngine()
    with serving(engine, redis_url, keys):
        assert engine.started.wait(5)

        pending = documents.client.xpending_range(documents.ready(), GROUP, "-", "+", 100)
        names = [entry["message_id"] for entry in pending]
        documents.client.xclaim(documents.ready(), GROUP, "another", 0, names)
        engine.gate.set()
        wait_until(lambda: _lost(capsys.readouterr().out))

    assert documents.num_results() == 0
    assert documents.client.xpending(documents.ready(), GROUP)["pending"] == 20


def _lost(out: str) -> bool:
    """Whether one line tells of all twenty."""
    lines = [json.loads(line) for line in out.splitlines()]
    counts = [line["count"] for line in lines if line["event"] == "lease.lost"]
    assert counts in ([], [20])
    return bool(counts)


def test_stopping_finishes_what_runs_and_hands_back_what_waits(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """A worker asked to stop loses nothing: its batch ends, and the rest is free at once."""
    engine = GatedEngine()
    documents.put(["running"])
    with serving(engine, redis_url, keys) as process:
        assert engine.started.wait(5)

        for name in ("w1", "w2"):
            documents.submit(name)
        documents.prepare()
        wait_until(lambda: documents.client.xpending(documents.ready(), GROUP)["pending"] == 3)
        process.stop.set()
        # within a second, though the reader may have just begun to wait for more
        wait_until(
            lambda: documents.client.xpending(documents.ready(), GROUP)["pending"] == 1,
            timeout_s=1.0,
        )
        engine.gate.set()
        wait_for_results(documents, 1)

    waiting = [fields for _, fields in documents.client.xrange(documents.ready())]

    assert [fields[b"n"] for fields in waiting] == [b"1", b"1"]
    assert documents.counts() == {"submitted": 3, "succeeded": 1}


def test_a_lost_registration_is_made_again(
    redis_url: str, redis_client: Any, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that lost its data learns anew what is served: the reaper looks there for streams."""
    monkeypatch.setattr(engine_worker, "_REGISTER_EVERY_S", 0.0)
    with serving(FakeEngine(), redis_url, keys):
        wait_until(lambda: redis_client.hlen(keys.models) == 1)
        redis_client.delete(keys.models)

        wait_until(lambda: redis_client.hlen(keys.models) == 1)


def test_a_restart_of_redis_is_survived(keys: Keys, redis_folder: Path) -> None:
    """While Redis is away the worker waits, and afterwards every document is answered once."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put([f"d{number}" for number in range(200)])
    with serving(FakeEngine(token_delay_s=0.001), server.url, keys, max_rows=4):
        wait_until(lambda: documents.num_results() > 20)
        server.stop()
        server = start_embedded(redis_folder)
        wait_until(lambda: documents.num_results() >= 200, timeout_s=15)

    assert set(Counter(result.custom_id for result in documents.results()).values()) == {1}
    assert documents.counts() == {"submitted": 200, "succeeded": 200}

    client.close()
    server.stop()


def test_a_redis_without_memory_is_worked_off(keys: Keys, redis_folder: Path) -> None:
    """When Redis takes nothing new, what is there is still answered, which makes room."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put(["a"])
    engine = GatedEngine()
    with serving(engine, server.url, keys, max_rows=2):
        assert engine.started.wait(5)

        for number in range(4):
            documents.submit(f"d{number}")
        documents.prepare()
        client.config_set("maxmemory", 1)
        engine.gate.set()
        wait_for_results(documents, 5)
        client.config_set("maxmemory", 0)

    assert documents.counts() == {"submitted": 5, "succeeded": 5}

    client.close()
    server.stop()


def test_a_worker_can_start_while_memory_is_full(keys: Keys, redis_folder: Path) -> None:
    """After a crash, a new worker works off what is there, though Redis takes nothing new."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put(["a"])
    with serving(FakeEngine(), server.url, keys):
        wait_for_results(documents, 1)
    documents.submit("b")
    documents.prepare()
    client.config_set("maxmemory", 1)
    with serving(FakeEngine(), server.url, keys):
        wait_for_results(documents, 2)
    client.config_set("maxmemory", 0)
    client.close()
    server.stop()


def test_sigterm_hands_back_what_cannot_end_in_time(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Asked to stop in the middle of a long batch, the process ends cleanly within its grace."""
    documents.put(["a", "b"])
    settings = {"redis_url": redis_url, "namespace": keys.namespace, "engine": "fake"}
    with running("tests.support.slow_engine_worker", "60", grace_s=1, **settings) as process:
        wait_until(lambda: documents.counts().get("running") == 2)
        process.send_signal(signal.SIGTERM)

        assert process.wait(5) == 0

    waiting = [fields for _, fields in documents.client.xrange(documents.ready())]

    assert [fields[b"n"] for fields in waiting] == [b"1", b"1"]
    assert documents.client.xpending(documents.ready(), GROUP)["pending"] == 0
    assert documents.counts() == {"submitted": 2}
    assert documents.client.hlen(keys.consumers) == 0


@pytest.mark.parametrize(
    ("names", "status", "within_s"),
    [(["a", "b"], EXIT_LEFT, 6.0), ([], 0, 2.0)],
    ids=["busy", "idle"],
)
def test_sigterm_while_redis_is_away_ends_soon(
    keys: Keys, redis_folder: Path, names: list[str], status: int, within_s: float
) -> None:
    """Nobody waits for a Redis that does not answer; the status says whether entries were left."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put(names)
    settings = {"redis_url": server.url, "namespace": keys.namespace, "engine": "fake"}
    with running("tests.support.slow_engine_worker", "60", grace_s=50, **settings) as process:
        wait_until(lambda: b'"ready"' in b"".join(_shown(client, keys)))
        wait_until(lambda: documents.counts().get("running", 0) == len(names))
        client.close()
        server.stop()
        process.send_signal(signal.SIGTERM)

        assert process.wait(within_s) == status


def test_an_unusable_configuration_ends_the_process(keys: Keys) -> None:
    """Without a Redis, or with a wrong setting, the worker exits with the status for it."""
    with running("workers.engine_worker", engine="fake") as process:
        assert process.wait(10) == 78
    with running("workers.engine_worker", engine="fake", max_rows=0) as process:
        assert process.wait(10) == 78


def test_an_unknown_model_ends_the_process(redis_url: str, keys: Keys) -> None:
    """A model that cannot be found is reported; the process does not try for ever."""
    settings = {"redis_url": redis_url, "namespace": keys.namespace, "model": "/no/such/model"}
    with running("workers.engine_worker", **settings) as process:
        assert process.wait(15) == 78
