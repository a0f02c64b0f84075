"""The whole service behind a real sentinel."""

from pathlib import Path

from docmill import Client
from tests.support.redis_sentinel import running_sentinel
from tests.support.service import running_service
from tests.support.wait import wait_until

NUM_DOCS = 2000


def test_a_job_ends_though_its_master_is_killed(tmp_path: Path, namespace: str) -> None:
    """Workers and client go on at the replica; what it had not heard of is done again there."""
    with (
        running_sentinel() as watched,
        running_service(tmp_path, redis_url=watched.url, namespace=namespace, heartbeat_ttl_s=1),
        Client(watched.url, namespace) as client,
    ):
        documents = [(str(number), f"text {number}") for number in range(NUM_DOCS)]
        job = client.submit(documents, prompt="Answer")
        wait_until(lambda: job.status().done > 0)
        watched.wait_for_replica()  # or else accepted documents may be lost: docs/operations.md
        watched.master.kill()
        num_done = int(watched.replica.admin.hget(job._link.keys.job(job.id), "succeeded"))
        final = job.wait(progress=False, timeout=25)
        custom_ids = [int(result.custom_id) for result in job.results(timeout=5)]

    assert num_done < NUM_DOCS
    assert list(range(NUM_DOCS)) == sorted(custom_ids)
    assert (NUM_DOCS, NUM_DOCS) == (final.submitted, final.succeeded)
