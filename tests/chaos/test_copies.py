"""Equal documents, and the death of the process that answers the first of them."""

from tests.chaos.scene import Scene
from tests.support.wait import wait_until


def test_copies_outlive_the_worker_that_held_their_original(stage: Scene) -> None:
    """FLD-D05 (b): SIGKILL while three copies wait; all are answered within a lease and a run."""
    doomed = stage.start("slow-1", "30")
    stage.start_service()
    stage.wait_until_ready(doomed)
    lists = f"{stage.keys.prefix}:followers:*"
    with stage.docmill() as client:
        job = client.submit(["the same"] * 4, prompt="Answer")
        # eight items each
        wait_until(
            lambda: [stage.client.llen(key) for key in stage.client.keys(lists)] == [3 * 8],
            what="three wait",
        )
        wait_until(lambda: stage.client.zcard(stage.keys.running), what="the original runs")
        doomed.kill()
        stage.start("engine-1")
        # a lease of 1 s, the reaper's confirmation and rounds, a run
        results = list(job.results(timeout=10))

    assert 4 * [True] == [result.ok for result in results]
    assert ["follower"] * 3 + ["run"] == sorted(result.shared for result in results)
    assert [] == [key for key in stage.client.scan_iter() if b":lead:" in key or b":foll" in key]
