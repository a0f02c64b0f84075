"""Redis forgets, loads, lags, or goes: nobody spins, nobody falls over, all go on by themselves."""

import random
import subprocess
import time
from collections.abc import Callable

import pytest
import redis

from docmill import Client
from docmill.errors import JobNotFound, ResultTimeout
from docmill.keys import GROUP
from tests.chaos.scene import NAMESPACE, Scene
from tests.support.wait import wait_until
from workers import redis_server
from workers.redis_server import RedisServer, find_binary

PROMPT = "Answer"
#: 40,000 commands in the append-only file, 60 us each.
_NUM_KEYS, _LOAD_DELAY_US = 40_000, "60"
_TROUBLE = ('"level": "warning"', '"level": "error"', "Traceback")


def _flush(stage: Scene) -> None:
    stage.client.flushall()


def _destroy_groups(stage: Scene) -> None:
    for stream in stage.watch.streams():
        stage.client.xgroup_destroy(stream, GROUP)


def _restart_empty(stage: Scene) -> None:
    stage.restart_redis(keeps_data=False)


def _lines(stage: Scene) -> int:
    return sum(len(stage.said(member)) for member in stage.crew.members)


@pytest.mark.parametrize("lose", [_flush, _destroy_groups, _restart_empty])
def test_what_redis_forgot_is_made_again(stage: Scene, lose: Callable[[Scene], None]) -> None:
    """FLD-O01: groups are there again within two seconds, from the beginning, no flood of logs.

    What is submitted at once afterwards runs once.
    """
    members = stage.start_service("engine-1")
    with stage.docmill() as client:
        first = client.submit(["before"], prompt=PROMPT)
        assert 1 == len(list(first.results(timeout=10)))
        said = _lines(stage)
        lose(stage)
        began = time.monotonic()
        texts = [f"text {at}" for at in range(50)]
        job = client.submit(texts, prompt=PROMPT, job_id="afterwards")
        results = list(job.results(timeout=10))
        took_s = time.monotonic() - began

    assert 50 == sum(result.ok for result in results)
    assert 50 == len({result.custom_id for result in results})
    assert 4 > took_s  # the groups within two, and the documents' own way
    assert _lines(stage) - said <= len(members) * 2 * (took_s + 1)
    assert all(member.process.is_alive() for member in members)


def test_data_lost_in_mid_job_is_said_to_be_lost(stage: Scene) -> None:
    """FLD-O01: who waits for a job that Redis has forgotten is told so; the workers go on."""
    busy = stage.start("slow-1", "1")
    stage.start_service()
    stage.wait_until_ready(busy)
    with stage.docmill() as client:
        job = client.submit([f"text {at}" for at in range(20)], prompt=PROMPT)
        wait_until(lambda: job.status().running, what="it runs")
        _flush(stage)
        with pytest.raises(JobNotFound):
            list(job.results(timeout=10))
        again = client.submit([f"next {at}" for at in range(20)], prompt=PROMPT)

        assert 20 == sum(result.ok for result in again.results(timeout=15))
    backlog = stage.client.hmget(stage.keys.backlog, "docs", "bytes")
    assert [0, 0] == [int(value or 0) for value in backlog]


def _trouble(stage: Scene) -> list[str]:
    lines = [line for member in stage.crew.members for line in stage.said(member)]
    return [line for line in lines if any(mark in line for mark in _TROUBLE)]


def _num_reads(stage: Scene) -> int:
    stats = stage.client.info("commandstats")
    return int(stats.get("cmdstat_xreadgroup", {}).get("calls", 0))


@pytest.mark.parametrize("query", ["", "?socket_timeout=0.1"])
def test_idling_is_silent_and_what_comes_then_runs_once(stage: Scene, query: str) -> None:
    """FLD-O03: reads that wait while nothing comes do not fail, whatever silence the URL allows.

    Several blocking reads pass without an entry; then documents come at odd moments.
    """
    stage.start_service("engine-1", redis_url=stage.server.url + query)
    chance = random.Random(3)
    wait_until(lambda: _num_reads(stage) >= 10, timeout_s=20, what="reads have waited in vain")
    waits: list[float] = []
    with stage.docmill() as client:
        for number in range(20):
            came = time.monotonic() + chance.expovariate(10)
            wait_until(lambda came=came: time.monotonic() >= came)  # type: ignore[misc]
            began = time.monotonic()
            job = client.submit([f"text {number}"], prompt=PROMPT)
            assert [True] == [result.ok for result in job.results(timeout=10)]
            waits.append(time.monotonic() - began)

    assert not _trouble(stage)
    assert 1.5 > max(waits)


def test_a_client_waits_longer_than_its_url_allows_for_silence(
    stage: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """FLD-O03: results that are long in coming are waited for without a word."""
    with Client(f"{stage.server.url}?socket_timeout=0.5", NAMESPACE) as client:
        job = client.submit(["text"], prompt=PROMPT)
        with pytest.raises(ResultTimeout):
            list(job.results(timeout=3))
        stage.start_service("engine-1")

        assert [True] == [result.ok for result in job.results(timeout=10)]
    assert not caplog.records


def test_a_large_reply_arrives_on_a_slow_line(stage: Scene) -> None:
    """FLD-O03: a document of 10 MB, and its 10 MB in several replies, do not count as silence."""
    stage.start_service("engine-1", max_context_len=4_000_000, bucket_bounds="[4096]")
    text = "0123456789abcdef" * (10 * 1024 * 1024 // 16)
    with stage.docmill() as client:
        job = client.submit([text], prompt=PROMPT, truncate="head")

        assert [True] == [result.ok for result in job.results(timeout=25)]
    assert not _trouble(stage)


def _start_loading(stage: Scene) -> None:
    """Start Redis again on so much data that it loads for some seconds; do not wait for it."""
    with stage.client.pipeline(transaction=False) as pipe:
        for number in range(_NUM_KEYS):
            pipe.set(f"load:{number}", b"")
        pipe.execute()
    stage.server.process.kill()
    stage.server.process.wait()
    path = stage.server.socket_path
    path.unlink()
    options = redis_server._options(path.parent, path, path.parent / "redis.log", True, 0)
    process = subprocess.Popen([str(find_binary()), *options, "--key-load-delay", _LOAD_DELAY_US])
    stage.server = RedisServer(process, path, path.parent / "redis.log")
    wait_until(path.exists, what="it listens")  # an outage's log tells what it began with


def test_a_redis_that_loads_is_waited_for(stage: Scene) -> None:
    """FLD-O05: those who come while Redis loads its data start by themselves once it is done.

    Nobody ends, and those who were there before go on as well.
    """
    before = stage.start_service("engine-1")
    _start_loading(stage)
    came = [stage.start(name) for name in ("control-2", "preprocess-2", "engine-2")]
    wait_until(
        lambda: all("LOADING" in member.text or "Loading" in member.text for member in came),
        what="they are told that it loads",
    )
    with pytest.raises(redis.exceptions.BusyLoadingError):
        stage.client.ping()
    with stage.docmill() as client:
        job = client.submit([f"text {at}" for at in range(20)], prompt=PROMPT)
        assert 20 == sum(result.ok for result in job.results(timeout=20))
    stage.wait_until_ready(*came)

    assert all(member.process.is_alive() for member in (*before, *came))
    assert 4 * len(came) >= len(_trouble(stage)) - 4 * len(before)
    assert not any("Traceback" in line for line in _trouble(stage))


def test_a_worker_in_a_full_redis_keeps_its_place(stage: Scene) -> None:
    """A Redis that takes no writes for want of memory does not make the living look dead."""
    worker = stage.start("slow-1", "2.5")
    stage.start_service()
    stage.wait_until_ready(worker)
    with stage.docmill() as client:
        job = client.submit(["text"], prompt=PROMPT)
        wait_until(lambda: job.status().running, what="it runs")
        stage.client.config_set("maxmemory", 1)
        assert [True] == [result.ok for result in job.results(timeout=15)]
        stage.client.config_set("maxmemory", 0)

    assert "lease.lost" not in worker.text


def test_ten_thousand_documents_leave_nothing_but_results(stage: Scene) -> None:
    """FLD-L06: streams are empty again, and after the results' lifetime memory is as before."""
    stage.start_service("engine-1", max_rows=64, result_cache_ttl_s=1)

    def run(count: int, mark: str) -> None:
        texts = (f"{mark} {number}" for number in range(count))
        with stage.docmill() as client:
            job = client.submit(texts, prompt=PROMPT, result_ttl=1)
            assert count == sum(result.ok for result in job.results(timeout=25))
        wait_until(lambda: not stage.client.exists(stage.keys.job(job.id)), what="it expires")
        wait_until(lambda: not list(stage.client.scan_iter("*:result:*")), what="answers expire")
        wait_until(lambda: not stage.client.exists(stage.keys.answers), what="they are forgotten")

    def eternal() -> set[bytes]:
        return {key for key in stage.client.scan_iter() if stage.client.pttl(key) == -1}

    run(1000, "first")
    memory_before, keys_before = stage.client.info("memory")["used_memory"], eternal()
    run(10_000, "then")
    wait_until(
        lambda: stage.client.info("memory")["used_memory"] <= 1.1 * memory_before,
        what="memory is as before",
    )

    assert not any(stage.client.xlen(stream) for stream in stage.watch.streams())
    assert keys_before == eternal()
