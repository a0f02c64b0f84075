"""Several shards on one server: where jobs lie, how they are found, how many there are."""

from collections.abc import Iterator
from typing import Any

import pytest

from docmill import Client
from docmill.errors import ConfigError, JobNotFound, ResultExpired
from docmill.keys import Keys, shard_of
from docmill.shards import Shards
from tests.support.canned_worker import CannedWorker

NUM_SHARDS = 3
IN_SHARD_2 = next(f"job-{n}" for n in range(100) if shard_of(f"job-{n}", NUM_SHARDS) == 2)


@pytest.fixture
def shards(redis_url: str, namespace: str, redis_client: Any, keys: Keys) -> Iterator[Shards]:
    """A namespace of which the service has said that it has three shards."""
    redis_client.set(keys.shards, NUM_SHARDS)
    shards = Shards(redis_url, namespace, 1.0)
    yield shards
    shards.close()


def test_a_namespace_of_which_nothing_is_said_has_one_shard(client: Client, keys: Keys) -> None:
    """Before a service has started, everything lies in the first shard."""
    job = client.submit(["a"], prompt="Answer", job_id=IN_SHARD_2)

    assert 1 == client._shards.count()
    assert keys.prefix == job._link.keys.prefix


def test_a_job_lies_whole_in_the_shard_of_its_id(
    shards: Shards, client: Client, redis_client: Any, namespace: str
) -> None:
    """Nothing of it lies in another shard, and a worker of its shard answers it."""
    job = client.submit(["a", "b"], prompt="Answer", job_id=IN_SHARD_2)
    CannedWorker(redis_client, Keys(namespace, 2)).step()

    assert ["A", "B"] == [result.text for result in job.results(timeout=5)]
    assert [] == list(redis_client.scan_iter(f"{Keys(namespace, 1).prefix}*"))
    assert [Keys(namespace).shards.encode()] == redis_client.keys(f"{Keys(namespace).prefix}*")


def test_a_named_job_is_looked_for_everywhere(shards: Shards, client: Client, keys: Keys) -> None:
    """A job begun when there were fewer shards is found and added to where it is."""
    shards.first.client.delete(keys.shards)
    client.submit([("a", "x")], prompt="Answer", job_id=IN_SHARD_2)
    shards.first.client.set(keys.shards, NUM_SHARDS)

    again = client.submit([("a", "x"), ("b", "y")], prompt="Answer", job_id=IN_SHARD_2)

    assert 2 == again.status().submitted == client.job(IN_SHARD_2).status().submitted
    assert shards.first.keys == shards.holding(IN_SHARD_2).keys


def test_a_job_that_is_nowhere_is_told_apart_from_one_that_was(
    shards: Shards, client: Client, keys: Keys
) -> None:
    """One that ended in any shard has expired; one that no shard knows was never there."""
    with pytest.raises(JobNotFound):
        client.job(IN_SHARD_2)
    shards.first.client.zadd(keys.jobs, {IN_SHARD_2: 1})
    with pytest.raises(ResultExpired):
        client.job(IN_SHARD_2)


def test_what_is_no_number_of_shards_is_refused(shards: Shards, keys: Keys) -> None:
    """Somebody else's value at that key is named rather than guessed at."""
    shards.first.client.set(keys.shards, "many")

    with pytest.raises(ConfigError, match="not a number"):
        shards.all()
