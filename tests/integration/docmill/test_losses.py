"""Connections that break at the worst moment, and a Redis that is away for a while."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from docmill import Client
from docmill.errors import BrokerUnavailable, QueueFull
from docmill.keys import Keys
from tests.support.canned_worker import CannedWorker, answering
from tests.support.proxy import Proxy, running_proxy
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until
from workers.redis_server import start_embedded


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """A proxy before the session's Redis."""
    with running_proxy(redis_url) as proxy:
        yield proxy


def test_a_lost_reply_doubles_nothing(
    proxy: Proxy, namespace: str, redis_client: Any, keys: Keys, worker: CannedWorker
) -> None:
    """Documents that Redis took before the connection broke are sent again, and taken once."""
    with Client(proxy.url, namespace) as client:
        client.ping()
        proxy.lose_replies(3, to=b"EVALSHA")
        job = client.submit(map(str, range(200)), prompt="Answer")
        assert 0 == proxy.replies_to_lose
        assert 200 == redis_client.xlen(keys.intake("batch"))
        worker.step(200)
        results = list(job.results(timeout=5))

    assert [str(number) for number in range(200)] == [result.text for result in results]
    assert (200, 200) == (job.status().submitted, job.status().succeeded)


def test_a_lost_reply_makes_no_duplicate_records(proxy: Proxy, namespace: str) -> None:
    """A document seen twice because it was sent twice is not taken for a duplicate id."""
    with Client(proxy.url, namespace) as client:
        client.ping()
        proxy.lose_replies(2, to=b"EVALSHA")
        job = client.submit([("a", "x"), ("b", "y"), ("a", "z")], prompt="Answer")
        status = job.status()

    assert (3, 1) == (status.submitted, status.failed)


def test_results_survive_a_broken_connection(
    proxy: Proxy, namespace: str, worker: CannedWorker
) -> None:
    """A reader whose connection breaks gets every result once, in order."""
    with Client(proxy.url, namespace) as client:
        job = client.submit(map(str, range(50)), prompt="Answer")
        results = job.results(timeout=10)
        worker.step(20)
        seen = [next(results).text]
        proxy.lose_replies(2, to=b"XREAD")
        worker.step(30)
        seen += [result.text for result in results]

    assert [str(number) for number in range(50)] == seen


def test_a_restart_of_redis_is_sat_out(
    tmp_path: Path, namespace: str, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    """Submitting and reading go on when Redis comes back, with one warning for each."""
    with (
        running_redis(is_durable=True) as server,
        Client(server.url, namespace) as client,
        redis.Redis.from_url(server.url) as raw,
    ):
        half_sent = threading.Event()
        restarted = threading.Event()

        def documents() -> Iterator[str]:
            for number in range(200):
                if number == 100:
                    half_sent.set()
                    restarted.wait(10)
                yield str(number)

        found: list[Any] = []

        def submit() -> None:
            found.append(client.submit(documents(), prompt="Answer"))

        sender = threading.Thread(target=submit)
        sender.start()
        half_sent.wait(10)
        server.stop()
        with caplog.at_level(logging.WARNING, "docmill"):
            restarted.set()
            wait_until(lambda: "trying again" in caplog.text, what="the loss was noticed")
            again = start_embedded(server.socket_path.parent)
        try:
            with answering(CannedWorker(raw, keys)):
                sender.join(10)
                texts = [result.text for result in found[0].results(timeout=10)]
        finally:
            again.stop()

    assert sorted(texts) == sorted(str(number) for number in range(200))
    assert 1 == caplog.text.count("trying again")


def test_a_redis_that_stays_away_is_given_up(namespace: str) -> None:
    """A connection that worked is waited for, but not for longer than asked."""
    with running_redis() as server:
        client = Client(server.url, namespace, reconnect_s=0.2)
        client.ping()
        server.stop()

        with pytest.raises(BrokerUnavailable, match="cannot be reached"):
            client.ping()


def test_a_redis_without_memory_is_waited_for(
    redis_client: Any, client: Client, worker: CannedWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """A Redis that refuses writes for want of memory counts as a full backlog."""
    with running_redis() as server, redis.Redis.from_url(server.url) as raw:
        small = Client(server.url, "small")
        first = small.submit(["x" * 1000], prompt="Answer", job_id="first")
        raw.config_set("maxmemory", raw.info("memory")["used_memory"])
        sender = threading.Thread(
            target=small.submit, args=(["y"],), kwargs={"prompt": "Answer", "job_id": "first"}
        )
        with caplog.at_level(logging.WARNING, "docmill"):
            sender.start()
            wait_until(lambda: "out of memory" in caplog.text or "full" in caplog.text)
        raw.config_set("maxmemory", 0)
        sender.join(10)

        assert 1 <= first.status().submitted
        assert not sender.is_alive()


def test_a_lack_of_memory_is_raised_on_request(namespace: str, redis_client: Any) -> None:
    """QueueFull names memory, before the job is opened and while it is filled, and at once."""
    with running_redis() as server, redis.Redis.from_url(server.url) as raw:
        small = Client(server.url, namespace)
        small.ping()

        def texts() -> Iterator[str]:
            yield "first"
            raw.config_set("maxmemory", 1)
            yield "second"

        with pytest.raises(QueueFull, match=r"out of memory \(maxmemory\).*raise it"):
            small.submit(texts(), prompt="Answer", on_full="raise")
        with pytest.raises(QueueFull, match=r"out of memory \(maxmemory\).*raise it"):
            small.submit(["text"], prompt="Answer", on_full="raise")


def test_memory_that_runs_out_in_mid_submission_is_waited_for(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Documents that Redis has no room for are sent again until it has; none is lost."""
    texts = [str(number) * 1000 for number in range(1000)]
    with running_redis() as server, redis.Redis.from_url(server.url) as raw:
        small = Client(server.url, namespace)
        raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 1_000_000)
        sender = threading.Thread(
            target=small.submit, args=(texts,), kwargs={"prompt": "Answer", "job_id": "large"}
        )
        with caplog.at_level(logging.WARNING, "docmill"):
            sender.start()
            wait_until(lambda: "waiting for room" in caplog.text)
        raw.config_set("maxmemory", 0)
        sender.join(10)

        assert "Redis is out of memory (maxmemory): " in caplog.text
        assert "the backlog is full" not in caplog.text
        assert not sender.is_alive()
        assert len(texts) == small.job("large").status().submitted
