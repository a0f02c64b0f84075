"""The client when another server becomes the master: after a kill, in order, or behind a name."""

from collections.abc import Iterator

import pytest

from docmill import Client
from docmill.connection import connect, is_passing
from docmill.errors import BrokerUnavailable
from docmill.keys import Keys
from docmill.transport import MasterMoved
from tests.support.canned_worker import CannedWorker, answering
from tests.support.proxy import running_proxy
from tests.support.redis_nodes import free_port
from tests.support.redis_sentinel import Watched, running_sentinel
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until


@pytest.fixture
def watched() -> Iterator[Watched]:
    """A master, its replica and their sentinel."""
    with running_sentinel() as watched:
        yield watched


def test_a_killed_master_is_followed_by_its_replica(watched: Watched, keys: Keys) -> None:
    """What had reached the replica goes on there; submitting again adds what had not."""
    texts = [str(number) for number in range(300)]
    with Client(watched.url, keys.namespace) as client, connect(watched.url) as connection:
        client.submit(texts[:200], prompt="Answer", job_id="job")
        CannedWorker(connection, keys).step(100)
        watched.wait_for_replica()
        watched.master.kill()
        job = client.submit(texts, prompt="Answer", job_id="job")
        with answering(CannedWorker(connection, keys)):
            results = [str(result.text) for result in job.results(timeout=10)]

        assert texts == sorted(results, key=int)
        assert (300, 300) == (job.status().submitted, job.status().succeeded)


def test_a_master_that_its_replicas_have_left_is_given_up(watched: Watched, keys: Keys) -> None:
    """For 10 s after an orderly failover the old master does not know; it must not take writes."""
    watched.master.admin.config_set("min-replicas-to-write", 1)
    with Client(watched.url, keys.namespace) as client:
        client.submit(["a"], prompt="Answer", job_id="job")
        watched.wait_for_replica()
        watched.fail_over()
        wait_until(lambda: watched.master_port() == watched.replica.port, what="the failover")
        client.submit(["a", "b"], prompt="Answer", job_id="job")

        assert b"2" == watched.replica.admin.hget(keys.job("job"), "submitted")
    assert "master" == watched.master.admin.info("replication")["role"]


def test_a_connection_to_a_demoted_master_is_given_up() -> None:
    """READONLY is met once: the next connection by the same name finds the new master."""
    with running_redis() as old, running_redis() as new, running_proxy(old.url) as proxy:
        with connect(proxy.url) as client, connect(old.url) as admin:
            client.set("x", "old")
            admin.replicaof("127.0.0.1", free_port())
            proxy.target = str(new.socket_path)
            with pytest.raises(MasterMoved, match="READONLY") as caught:
                client.set("x", "new")
            client.set("x", "new")

            assert is_passing(caught.value)
            assert b"new" == client.get("x")
        with connect(new.url) as admin:
            assert b"new" == admin.get("x")


def test_a_script_at_a_demoted_master_is_sent_again() -> None:
    """A submission under way goes on behind the same name, whole, at the new master."""
    with running_redis() as old, running_redis() as new, running_proxy(old.url) as proxy:
        client = Client(proxy.url)
        client.ping()
        with connect(old.url) as admin:
            admin.replicaof("127.0.0.1", free_port())
        proxy.target = str(new.socket_path)
        job = client.submit(["a", "b"], prompt="Answer")

        assert 2 == job.status().submitted
        client.close()


def test_a_single_server_is_no_cluster(watched: Watched) -> None:
    """A cluster's URL at a server that is none is answered with the right one."""
    with (
        Client(f"redis+cluster://{watched.master.place}") as client,
        pytest.raises(BrokerUnavailable, match="use redis://"),
    ):
        client.ping()
