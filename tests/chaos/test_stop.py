"""Processes that are asked to stop, at good moments and at bad ones (FLD-L10)."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.chaos.crew import Member
from tests.chaos.scene import Scene, ends_within
from tests.support.command import descendants
from tests.support.processes import ROOT
from tests.support.wait import wait_until

PROMPT = "Answer"


def _has_left_in_order(stage: Scene, member: Member) -> bool:
    """Whether it ended with status 0, no traceback and no trace on the list."""
    said = stage.said(member)
    return (
        member.process.exitcode == 0
        and not any("Traceback" in line for line in said)
        and not stage.shown(member)
    )


@pytest.mark.parametrize("name", ["preprocess-1", "engine-1", "control-1"])
def test_an_idle_process_ends_at_once(stage: Scene, name: str) -> None:
    """FLD-L10: SIGTERM ends a process that only waits for entries in under 2 s."""
    member = stage.start(name)
    stage.wait_until_ready(member)
    member.ask_to_stop()

    assert 2 > ends_within(member, 10)
    assert _has_left_in_order(stage, member)


def test_a_worker_that_loads_its_model_ends_at_once(stage: Scene) -> None:
    """FLD-L10: loading may take minutes and cannot be interrupted; nobody has to wait for it."""
    member = stage.start("odd-1", "loads", "600", os.devnull)
    wait_until(lambda: b'"loading"' in stage.shown(member), what="it loads")
    member.ask_to_stop()

    assert 2 > ends_within(member, 10)
    assert _has_left_in_order(stage, member)


@pytest.mark.parametrize("module", ["workers.preprocess_worker", "workers.control"])
def test_the_first_process_of_a_container_ends_when_asked(stage: Scene, module: str) -> None:
    """FLD-L10: as process 1, which the kernel gives no default handlers, it ends in order too."""
    command = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable)
    if subprocess.run([*command, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make process namespaces")
    post = stage.post("preprocess-1")
    variables = os.environ | post.variables  # noqa: TID251 - as a container's runtime does
    outside = subprocess.Popen([*command, "-m", module], cwd=ROOT, env=variables)
    try:
        states = wait_until(lambda: _ready_pids(stage), timeout_s=20, what="it is ready")
        (inside,) = descendants(outside.pid)
        os.kill(inside, signal.SIGTERM)

        assert {1} == states
        assert 0 == outside.wait(5)
    finally:
        outside.kill()
        outside.wait()


def _ready_pids(stage: Scene) -> set[int]:
    shown = map(json.loads, stage.client.hvals(stage.keys.consumers))
    return {one["pid"] for one in shown if one["state"] == "ready"}


@pytest.mark.parametrize("name", ["preprocess-1", "engine-1", "control-1"])
def test_a_process_ends_while_redis_is_down(stage: Scene, name: str) -> None:
    """FLD-L10: it need not wait for Redis to come back, whether it was there or not yet."""
    early = stage.start(name, redis_url="unix:///nonexistent/redis.sock")
    member = stage.start(name)
    stage.wait_until_ready(member)
    wait_until(lambda: early.log.exists() and "redis.failed" in early.last, what="it waits")
    stage.server.process.kill()
    stage.server.process.wait()
    wait_until(lambda: "redis.failed" in "".join(stage.said(member)), what="it has noticed")
    early.ask_to_stop()
    member.ask_to_stop()

    assert 2 > ends_within(early, 10)
    assert 5 > ends_within(member, 10)  # the grace
    assert [0, 0] == [early.process.exitcode, member.process.exitcode]
    assert not any("Traceback" in line for line in stage.said(early) + stage.said(member))


def test_a_running_batch_is_finished_within_the_grace(stage: Scene) -> None:
    """FLD-L10: what runs ends and is written; what waits is others' within two seconds."""
    stopping = stage.start("slow-1", "2", max_rows=4)
    stage.start_service()
    stage.wait_until_ready(stopping)
    with stage.docmill() as client:
        job = client.submit([f"text {at}" for at in range(12)], prompt=PROMPT)
        wait_until(lambda: job.status().running, what="it runs")
        other = stage.start("engine-1")
        stage.wait_until_ready(other)
        stopping.ask_to_stop()
        began = time.monotonic()
        wait_until(lambda: not job.status().waiting, what="the other answers what waited")
        others_s = time.monotonic() - began
        results = list(job.results(timeout=20))

    assert 2 > others_s
    assert 12 == sum(result.ok for result in results)
    assert 5 > ends_within(stopping, 10)
    assert _has_left_in_order(stage, stopping)
    assert "lease.lost" not in "".join(stage.said(stopping) + stage.said(other))


def test_what_cannot_end_within_the_grace_is_handed_back(stage: Scene) -> None:
    """FLD-L10: work that takes longer than the grace is another's in time, uncounted."""
    stopping = stage.start("slow-1", "600", max_rows=4, grace_s=1)
    stage.start_service(max_deliveries=1)
    stage.wait_until_ready(stopping)
    with stage.docmill() as client:
        job = client.submit([f"text {at}" for at in range(12)], prompt=PROMPT)
        wait_until(lambda: job.status().running, what="it runs")
        stage.wait_until_ready(stage.start("engine-1", max_deliveries=1))
        stopping.ask_to_stop()

        assert 3 > ends_within(stopping, 10)
        assert 0 == stopping.process.exitcode
        assert 12 == sum(result.ok for result in job.results(timeout=10))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_it_at_once(stage: Scene, number: signal.Signals) -> None:
    """FLD-L10: who asks twice waits for less than a second, whatever the worker is doing.

    What it held is handed back as a dead worker's is.
    """
    stopping = stage.start("slow-1", "600", grace_s=60)
    stage.start_service()
    stage.wait_until_ready(stopping)
    with stage.docmill() as client:
        job = client.submit(["text"], prompt=PROMPT)
        wait_until(lambda: job.status().running, what="it runs")
        stopping.ask_to_stop(number)
        wait_until(lambda: "worker.draining" in "".join(stage.said(stopping)), what="it drains")
        stopping.ask_to_stop(number)

        assert 1 > ends_within(stopping, 10)
        assert 128 + number == stopping.process.exitcode
        stage.start("engine-1")
        assert [True] == [result.ok for result in job.results(timeout=20)]
