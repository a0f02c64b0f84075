"""The whole service on a real Redis Cluster, each shard with a master of its own."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from docmill import Client
from docmill.connection import connect
from docmill.errors import BrokerUnavailable
from docmill.job import Job
from docmill.keys import Keys, shard_of
from tests.support.command import docmill
from tests.support.redis_cluster import Cluster, running_cluster
from tests.support.service import running_service
from tests.support.wait import wait_until
from workers.readiness import Readiness
from workers.settings import Settings

NUM_SHARDS = 3
NUM_DOCS = 1500


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> str:
    """A namespace whose three shards lie with three masters."""
    return cluster.namespace(NUM_SHARDS)


@pytest.fixture(scope="module")
def client(
    cluster: Cluster, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A client of a service that serves all three shards."""
    settings = {"redis_url": cluster.url, "namespace": namespace, "shards": NUM_SHARDS}
    state_dir = tmp_path_factory.mktemp("state")
    with (
        running_service(state_dir, heartbeat_ttl_s=1, **settings),
        Client(cluster.url, namespace) as client,
    ):
        yield client


def submit(client: Client, shard: int, name: str) -> Job:
    """Submit a job that lies in a shard."""
    ids = (f"{name}-{number}" for number in range(1000))
    job_id = next(job_id for job_id in ids if shard_of(job_id, NUM_SHARDS) == shard)
    documents = [(str(number), f"{name} {number}") for number in range(NUM_DOCS)]
    return client.submit(documents, prompt="Answer", job_id=job_id)


def assert_whole(job: Job) -> None:
    """Assert that every document has one result, a success."""
    custom_ids = [int(result.custom_id) for result in job.results(timeout=20)]

    assert list(range(NUM_DOCS)) == sorted(custom_ids)
    assert (NUM_DOCS, NUM_DOCS) == (job.status().submitted, job.status().succeeded)


def is_under_way(job: Job) -> bool:
    """Tell whether some documents are done."""
    status = job.status()
    assert not status.is_finished
    return status.done > 0


def engine(client: Any, keys: Keys) -> tuple[str, int]:
    """Return the consumer and the process of the shard's engine worker."""
    for consumer, said in client.hgetall(keys.consumers).items():
        if (shown := json.loads(said))["role"] == "engine":
            return consumer.decode(), shown["pid"]
    raise LookupError


def test_every_shard_is_served(client: Client) -> None:
    """Jobs of all shards end at the same time."""
    for job in [submit(client, shard, "plain") for shard in range(NUM_SHARDS)]:
        assert_whole(job)


def test_the_command_line_shows_all_shards(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    """`docmill status` lists every shard's workers and jobs."""
    jobs = [submit(client, shard, "shown") for shard in range(NUM_SHARDS)]
    shown = docmill("status", "--json", "--redis-url", cluster.url, "--namespace", namespace)
    found = json.loads(shown.stdout)

    assert 3 * NUM_SHARDS == len(found["workers"])
    assert {job.id for job in jobs} <= {job["job_id"] for job in found["jobs"]}


def test_a_service_with_a_plain_url_says_which_is_needed(cluster: Cluster, namespace: str) -> None:
    """It does not start and fail later, shard by shard."""
    url = f"redis://{cluster.masters[0].place}/0"
    settings = Settings(redis_url=SecretStr(url), namespace=namespace, shards=NUM_SHARDS)

    with pytest.raises(BrokerUnavailable, match="use redis\\+cluster://"):
        Readiness(settings).check()


def test_a_slot_that_moves_under_a_job_loses_and_doubles_nothing(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    """Workers and client find the shard at its new master, in the middle of a job."""
    keys = Keys(namespace, 1)
    source = cluster.owner(keys.prefix)
    target = next(node for node in cluster.masters if node is not source)
    job = submit(client, 1, "moved")
    wait_until(lambda: is_under_way(job))
    cluster.begin_move(keys.prefix, target)
    assert int(source.admin.hget(keys.job(job.id), "succeeded")) < NUM_DOCS
    cluster.end_move(keys.prefix, target)

    assert_whole(job)
    assert target.admin.exists(keys.job(job.id))


def test_a_killed_worker_s_documents_are_handed_back(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    """The shard's reaper gives what a killed engine worker held to the one that replaces it."""
    keys = Keys(namespace, 2)
    with connect(cluster.url, key=keys.prefix) as connection:
        consumer, pid = engine(connection, keys)
        job = submit(client, 2, "killed")
        wait_until(lambda: is_under_way(job))
        os.kill(pid, signal.SIGKILL)

        assert_whole(job)
        wait_until(lambda: not connection.hexists(keys.consumers, consumer), what="reaped")
