"""Who dies, who only seems to, and what becomes of what they held."""

import time
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.crew import Member
from tests.chaos.scene import Scene, ends_within
from tests.support.wait import wait_until

PROMPT = "Answer"
#: A consumer that is gone is off the list so soon, at a heartbeat's lifetime of a second.
_FORGOTTEN_S = 6.0


def _texts(count: int, mark: str = "text") -> list[str]:
    return [f"{mark} {number}" for number in range(count)]


@pytest.mark.parametrize("way", ["sleeps", "hogs"])
def test_a_document_longer_than_the_lease_runs_once(stage: Scene, tmp_path: Path, way: str) -> None:
    """FLD-L01: three times the lease, three workers, one pass, as long as the worker shows itself.

    An engine that lets no other thread of its process run for longer than the lease may lose its
    entry; the second pass then gives no second result.
    """
    notes = tmp_path / "notes"
    seconds = "3.5" if way == "sleeps" else "1.5"
    workers = [stage.start(f"odd-{at}", way, seconds, str(notes)) for at in range(3)]
    stage.start_service()
    stage.wait_until_ready(*workers)
    with stage.docmill() as client:
        job = client.submit(["a long one"], prompt=PROMPT)
        results = list(job.results(timeout=20))
    wait_until(lambda: not stage.num_pending(), what="nothing is pending")
    passes = notes.read_text().splitlines()

    assert [True] == [result.ok for result in results]
    assert 1 == stage.client.xlen(stage.keys.results(job.id))
    if way == "sleeps":
        assert 1 == len(passes)


def test_killing_the_reapers_as_well_leaves_nothing_pending(stage: Scene) -> None:
    """FLD-L02: workers die holding documents, and whoever would hand these back dies doing so.

    Both reapers live for some commands only, so that they die at any step of a pass; still every
    document is answered once, soon, and no lock is left that never expires.
    """
    stage.start("preprocess-1")
    for number in (1, 2):
        post = stage.post(f"control-{number}", span=(60, 600))
        stage.crew.start(post)
    for number in range(3):
        stage.crew.start(stage.post(f"slow-{number}", "0.2", span=(40, 200), max_rows=2))
    kills = 0

    def tend() -> bool:
        nonlocal kills
        for member in stage.crew.ended(0.01):
            kills += member.died
            stage.crew.start(member.post)
        return kills >= 25

    for batch in range(3):
        with stage.docmill() as client:
            client.submit(_texts(20, f"batch {batch}"), prompt=PROMPT, job_id=f"job-{batch}")
    wait_until(tend, timeout_s=40, what="25 kills")
    stage.crew.truce.touch()
    with stage.docmill() as client:
        jobs = [client.job(f"job-{batch}") for batch in range(3)]
        wait_until(
            lambda: tend() and all(job.status().is_finished for job in jobs),
            timeout_s=20,
            what="all jobs end",
        )
        found = [[result.custom_id for result in job.results(timeout=5)] for job in jobs]
    wait_until(lambda: tend() and not stage.num_pending(), what="nothing is pending")
    eternal = [key for key in stage.client.scan_iter() if b"reaper" in key and b"token" not in key]

    assert 3 * [sorted(str(at) for at in range(1, 21))] == [
        sorted(name.rpartition("-")[2] for name in names) for names in found
    ]
    assert all(stage.client.pttl(key) != -1 for key in eternal)


def test_restarts_leave_no_consumers_behind(stage: Scene) -> None:
    """FLD-L07: 20 restarts, half of them by SIGKILL with work pending, are soon forgotten.

    No consumer is taken off a group while entries are pending for it, so all is answered.
    """
    stage.start_service()
    ended_at: dict[str, float] = {}
    with stage.docmill() as client:
        jobs = []
        for number in range(20):
            member = stage.start(f"slow-{number}", "0.3", max_rows=4)
            stage.wait_until_ready(member)
            jobs.append(client.submit(_texts(20, f"job {number}"), prompt=PROMPT))
            wait_until(partial(stage.watch.num_held, member.pid), what="it holds something")
            _end(member, by_kill=bool(number % 2))
            ended_at[str(member.pid)] = time.monotonic()
            listed = {name.split("-")[-2] for name in stage.consumers()}
            long_gone = [pid for pid in listed if time.monotonic() - ended_at[pid] > _FORGOTTEN_S]

            assert not long_gone
        steady = stage.start("engine-steady")
        wait_until(lambda: all(job.status().is_finished for job in jobs), what="all jobs end")

        assert 20 * [20] == [job.status().succeeded for job in jobs]
    pid = f"-{steady.pid}-"
    wait_until(lambda: all(pid in name for name in stage.consumers()), what="one is listed")


def _end(member: Member, *, by_kill: bool) -> None:
    if by_kill:
        member.kill()
    else:
        member.process.terminate()
    ends_within(member, 10)
    assert member.died if by_kill else 0 == member.process.exitcode


def test_a_worker_that_wakes_up_too_late_drops_its_answers(stage: Scene) -> None:
    """A worker is frozen in mid-batch until its entries were given away: it says that it lost them.

    Its answers change nothing, and it goes on with what comes next.
    """
    frozen = stage.start("slow-1", "0.5")
    stage.start_service()
    stage.wait_until_ready(frozen)
    with stage.docmill() as client:
        job = client.submit(_texts(4), prompt=PROMPT)
        wait_until(lambda: stage.client.zcard(stage.keys.running), what="they run")
        frozen.freeze()
        stage.start("engine-1")
        wait_until(lambda: job.status().is_finished, timeout_s=20, what="others answer")
        frozen.thaw()
        wait_until(
            lambda: [line for line in stage.said(frozen) if "lease.lost" in line],
            what="it says that it lost them",
        )
        again = client.submit(_texts(40, "next"), prompt=PROMPT)
        assert 40 == sum(result.ok for result in again.results(timeout=20))

    assert 4 == stage.client.xlen(stage.keys.results(job.id))
    assert frozen.process.is_alive()
