"""The client on a real Redis Cluster: shards on different masters, slots that move, a failover."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from docmill import Client
from docmill.connection import connect, is_passing
from docmill.errors import BrokerUnavailable, JobNotFound
from docmill.keys import Keys, shard_of
from docmill.transport import MasterMoved
from tests.support.canned_worker import CannedWorker
from tests.support.redis_cluster import Cluster, is_ok, running_cluster
from tests.support.redis_nodes import Node, free_port
from tests.support.wait import wait_until

NUM_SHARDS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace of the test's own, whose three shards lie with three masters."""
    return cluster.namespace(NUM_SHARDS)


@pytest.fixture
def connections(cluster: Cluster, namespace: str) -> Iterator[list[Any]]:
    """A connection to each shard; the service has said how many there are."""
    prefixes = [Keys(namespace, shard).prefix for shard in range(NUM_SHARDS)]
    made = [connect(cluster.url, key=prefix, timeout_s=5) for prefix in prefixes]
    made[0].set(Keys(namespace).shards, NUM_SHARDS)
    yield made
    for one in made:
        one.close()


def job_in(shard: int, name: str = "job") -> str:
    """Return a job id that belongs in a shard."""
    return next(
        job_id
        for job_id in (f"{name}-{number}" for number in range(1000))
        if shard_of(job_id, NUM_SHARDS) == shard
    )


def another(cluster: Cluster, key: str) -> Node:
    """Return a master that does not have a key's slot."""
    owner = cluster.owner(key)
    return next(node for node in cluster.masters if node is not owner)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Begin to do something."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_each_shard_s_jobs_lie_with_its_master(
    cluster: Cluster, namespace: str, connections: list[Any]
) -> None:
    """A job is submitted to, worked on in and read from the one shard that its id names."""
    with Client(cluster.url, namespace) as client:
        for shard in range(NUM_SHARDS):
            keys = Keys(namespace, shard)
            job = client.submit(["a", "b", "c"], prompt="Answer", job_id=job_in(shard))
            CannedWorker(connections[shard], keys).step()

            assert ["A", "B", "C"] == [result.text for result in job.results(timeout=5)]
            assert cluster.owner(keys.prefix).admin.exists(keys.job(job.id))

    assert len({cluster.owner(Keys(namespace, shard).prefix).port for shard in range(3)}) == 3


def test_a_job_is_found_after_the_number_of_shards_has_changed(
    cluster: Cluster, namespace: str, connections: list[Any]
) -> None:
    """A job stays where it was begun: to come back to, and to be added to."""
    connections[0].set(Keys(namespace).shards, 1)
    job_id = job_in(2, "before")
    with Client(cluster.url, namespace) as client:
        client.submit([("a", "x")], prompt="Answer", job_id=job_id)
        connections[0].set(Keys(namespace).shards, NUM_SHARDS)
        client.submit([("a", "x"), ("b", "y")], prompt="Answer", job_id=job_id)

        assert 2 == client.job(job_id).status().submitted
        with pytest.raises(JobNotFound):
            client.job("never")


def test_dead_seeds_are_passed_over(cluster: Cluster, namespace: str) -> None:
    """One node that answers is enough to find the others."""
    url = f"redis+cluster://127.0.0.1:{free_port()},{cluster.masters[2].place}"
    with connect(url, key=Keys(namespace).prefix) as client:
        assert client.ping()


def test_a_cluster_without_a_node_that_answers_is_told(namespace: str) -> None:
    """Nobody is there: said at once, with what to do."""
    with (
        Client(f"redis+cluster://127.0.0.1:{free_port()}", namespace) as client,
        pytest.raises(BrokerUnavailable, match="Connection refused"),
    ):
        client.ping()


def test_the_wrong_kind_of_url_is_told(
    cluster: Cluster, namespace: str, connections: list[Any]
) -> None:
    """A plain URL at a node is answered with the right one."""
    other = another(cluster, Keys(namespace).prefix)
    with (
        Client(f"redis://{other.place}/0", namespace) as client,
        pytest.raises(BrokerUnavailable, match="use redis\\+cluster://"),
    ):
        client.ping()


@pytest.mark.parametrize(
    "call",
    [
        lambda client, key: client.set(key, "new"),
        lambda client, key: client.pipeline(transaction=False).get(key).get(key).execute(False),
        lambda client, key: client.pipeline(transaction=True).get(key).execute(),
        lambda client, key: client.register_script("return redis.call('GET', KEYS[1])")([key]),
    ],
    ids=["command", "pipeline", "transaction", "script"],
)
def test_whatever_meets_a_move_finds_the_new_master_next(
    cluster: Cluster, connections: list[Any], namespace: str, call: Callable[[Any, str], Any]
) -> None:
    """Once the slot has moved one attempt fails, as a passing error, and the next one works."""
    client, prefix = connections[1], Keys(namespace, 1).prefix
    call(client, f"{prefix}:x")
    target = another(cluster, prefix)
    cluster.begin_move(prefix, target)
    cluster.end_move(prefix, target)

    with pytest.raises(MasterMoved) as caught:
        call(client, f"{prefix}:x")
    assert is_passing(caught.value)
    call(client, f"{prefix}:x")


def test_idle_connections_do_not_meet_a_move_one_by_one(
    cluster: Cluster, connections: list[Any], namespace: str
) -> None:
    """The first that is sent away ends those that wait for use, so that one attempt is lost."""
    client, prefix = connections[1], Keys(namespace, 1).prefix
    for single in [client.client() for _ in range(5)]:
        single.close()
    target = another(cluster, prefix)
    cluster.begin_move(prefix, target)
    cluster.end_move(prefix, target)
    with pytest.raises(MasterMoved):
        client.set(f"{prefix}:x", 1)

    taken = [client.client() for _ in range(5)]
    assert {target.port} == {single.connection.port for single in taken}
    for single in taken:
        single.close()


def test_a_blocked_read_is_sent_on(
    cluster: Cluster, connections: list[Any], namespace: str
) -> None:
    """A read that waits while its slot moves ends with a passing error instead of waiting on."""
    client, prefix = connections[2], Keys(namespace, 2).prefix
    ended: list[Exception] = []

    def read() -> None:
        try:
            client.xread({f"{prefix}:s": "0"}, block=20_000)
        except redis.RedisError as error:
            ended.append(error)

    source, target = cluster.owner(prefix), another(cluster, prefix)
    reading = in_thread(read)
    wait_until(lambda: source.admin.info("clients")["blocked_clients"])
    cluster.begin_move(prefix, target)
    cluster.end_move(prefix, target)
    reading.join(10)

    assert [True] == [is_passing(error) for error in ended]


def test_documents_sent_while_a_slot_moves_are_taken_once(
    cluster: Cluster, namespace: str, connections: list[Any]
) -> None:
    """A submission waits while its slot is between two masters, and goes on at the new one."""
    keys, job_id = Keys(namespace, 0), job_in(0, "moving")
    texts = [str(number) for number in range(200)]
    with Client(cluster.url, namespace) as client:
        client.submit(texts[:100], prompt="Answer", job_id=job_id)
        target = another(cluster, keys.prefix)
        cluster.begin_move(keys.prefix, target)
        sending = in_thread(lambda: client.submit(texts, prompt="Answer", job_id=job_id))
        wait_until(lambda: errors_of(cluster, "ASK"), what="the submission was sent on")
        cluster.end_move(keys.prefix, target)
        sending.join(10)
        job = client.job(job_id)
        with connect(cluster.url, key=keys.prefix) as connection:
            CannedWorker(connection, keys).step(500)
        results = list(job.results(timeout=5))

    assert sorted(texts) == sorted(str(result.text) for result in results)
    assert 200 == job.status().succeeded


def errors_of(cluster: Cluster, code: str) -> int:
    """Return how often the masters have answered with an error of this code."""
    found = [node.admin.info("errorstats").get(f"errorstat_{code}") for node in cluster.masters]
    return sum(stat["count"] for stat in found if stat)


def owned_by(cluster: Cluster, node: Node) -> Keys:
    """Return the keys of a shard whose master is this one."""
    all_keys = (Keys(f"ns{number}") for number in range(1000))
    return next(keys for keys in all_keys if cluster.owner(keys.prefix) is node)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "isolated"])
def test_a_replica_takes_over(*, is_killed: bool) -> None:
    """The client sits the failover out, and every document is there once.

    A master that is only cut off from the others still answers, and names itself.
    """
    with running_cluster(num_replicas=1) as cluster:
        master, replica = cluster.masters[0], cluster.replicas[0]
        keys = owned_by(cluster, master)
        with Client(cluster.url, keys.namespace) as client:
            client.submit(map(str, range(100)), prompt="Answer", job_id="job")
            assert master.admin.execute_command("WAIT", 1, 5000) == 1
            if is_killed:
                master.kill()
            else:
                cluster.isolate(master)
                wait_until(lambda: not is_ok(master), what="it knows that it is alone")
            client.submit(map(str, range(200)), prompt="Answer", job_id="job")

            assert 200 == client.job("job").status().submitted
        assert b"200" == replica.admin.hget(keys.job("job"), "submitted")


def test_credentials_are_for_all_nodes(
    cluster: Cluster, namespace: str, connections: list[Any]
) -> None:
    """Whoever is asked, and whoever is the master, gets the user's name and password."""
    for node in cluster.masters:
        node.admin.execute_command("ACL", "SETUSER", "me", "on", ">s3cret", "~*", "&*", "+@all")
    places = cluster.url.removeprefix("redis+cluster://")
    with Client(f"redis+cluster://me:s3cret@{places}", namespace) as client:
        for shard in range(NUM_SHARDS):
            job = client.submit(["a"], prompt="Answer", job_id=job_in(shard))
            assert 1 == job.status().submitted
    with (
        Client(f"redis+cluster://me:wr0ng@{places}", namespace) as client,
        pytest.raises(BrokerUnavailable, match="refused the user name") as caught,
    ):
        client.ping()
    assert "wr0ng" not in str(caught.value)
