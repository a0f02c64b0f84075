"""A document that kills its worker ends as a dead letter, and takes nobody along."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from docmill.connection import connect
from docmill.keys import Keys
from docmill.wire import Body
from tests.support.deadly_worker import POISON, POISON_TEXT
from tests.support.processes import running
from tests.support.ready_documents import Documents
from tests.support.wait import wait_until
from workers.reaper import confirmation_s, reap
from workers.registry import ServedModel, register

NUM_NEIGHBOURS = 30
HEARTBEAT_TTL_S = 0.6
MAX_DELIVERIES = 3


@contextmanager
def _reaping(redis_url: str, keys: Keys) -> Iterator[None]:
    """Look for dead workers many times a second, and bring back what waits for another try."""
    stop = threading.Event()
    client = connect(redis_url)
    documents = Documents(client, keys)

    def look() -> None:
        confirm_s = confirmation_s(HEARTBEAT_TTL_S)
        while not stop.wait(0.05):
            reap(client, keys, confirm_s=confirm_s, max_deliveries=MAX_DELIVERIES)
            documents.scripts.call("due", 100)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        client.close()


def _work(redis_url: str, keys: Keys, role: str, is_done: Callable[[], bool]) -> int:
    """Start a worker after the other until the work is done; return how many were killed."""
    num_killed = 0
    settings = {
        "redis_url": redis_url,
        "namespace": keys.namespace,
        "engine": "fake",
        "model": "fake",
        "heartbeat_ttl_s": HEARTBEAT_TTL_S,
        "max_deliveries": MAX_DELIVERIES,
    }
    while not is_done():
        with running("tests.support.deadly_worker", role, **settings) as worker:
            wait_until(lambda: worker.poll() is not None or is_done(), timeout_s=30)
            num_killed += worker.poll() is not None
    return num_killed


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test, with somebody alive who once read the intake."""
    register(redis_client, keys, "fake", ServedModel("fake", 32_768, (), num_buckets=1))
    redis_client.set(keys.heartbeat("preparer"), 1)
    return Documents(redis_client, keys)


def _dead(documents: Documents) -> list[tuple[bytes, bytes]]:
    return [
        (letter[b"i"], letter[b"reason"])
        for _, letter in documents.client.xrange(documents.keys.dead)
    ]


def test_a_document_that_kills_the_engine_dies_alone(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Thirty neighbours of its first batch are answered, and none of them is a dead letter."""
    documents.open()
    documents.submit_all([(f"before{number}", b"x") for number in range(NUM_NEIGHBOURS // 2)])
    documents.prepare()
    documents.submit("poison")
    documents.prepare(POISON)
    documents.submit_all([(f"after{number}", b"x") for number in range(NUM_NEIGHBOURS // 2)])
    documents.prepare()

    with _reaping(redis_url, keys):
        num_killed = _work(
            redis_url, keys, "engine", lambda: documents.num_results() > NUM_NEIGHBOURS
        )

    bodies: dict[str, Body] = {result.custom_id: result.body for result in documents.results()}
    error = bodies.pop("poison").error

    assert error is not None
    assert error.code == "delivery_limit"
    assert {body.outcome for body in bodies.values()} == {"succeeded"}
    assert len(bodies) == NUM_NEIGHBOURS
    assert _dead(documents) == [(b"job.poison", b"delivery_limit")]
    assert num_killed == MAX_DELIVERIES
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_a_document_that_kills_the_preparation_dies_alone(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Thirty neighbours that were read with it become ready, and none of them is a dead letter."""
    documents.open()
    told = [(f"d{number}", b"text %d" % number) for number in range(NUM_NEIGHBOURS)]
    told.insert(NUM_NEIGHBOURS // 2, ("poison", POISON_TEXT))
    documents.submit_all(told)

    def is_done() -> bool:
        num_ready: int = documents.client.xlen(documents.ready())
        return num_ready == NUM_NEIGHBOURS and documents.num_results() == 1

    with _reaping(redis_url, keys):
        num_killed = _work(redis_url, keys, "preprocess", is_done)

    assert {result.body.error.code for result in documents.results() if result.body.error} == {
        "delivery_limit"
    }
    assert _dead(documents) == [(b"job.poison", b"delivery_limit")]
    assert num_killed == MAX_DELIVERIES
