"""What control warns of when it starts."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from docmill.connection import connect
from docmill.errors import ConfigError
from docmill.keys import Keys
from tests.support.engine_workers import make_process
from tests.support.ready_documents import Documents
from tests.support.redis_server import running_redis
from workers import control
from workers.cautions import about, warn_of_forgetting
from workers.redis_server import RedisServer
from workers.rounds import Rounds
from workers.tasks import Tasks


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis whose configuration a test may change."""
    with running_redis() as server:
        yield server


def _warned(client: Any, shard: int = 0) -> list[str]:
    with capture_logs() as logged:
        warn_of_forgetting(client, shard)
    return [line["problem"] for line in logged if line["event"] == "redis.unsafe"]


def test_a_redis_that_may_forget_is_named(server: RedisServer) -> None:
    """Eviction and a missing append-only file are a line each, with the setting and the remedy."""
    with connect(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        evicts, forgets = _warned(client)

        assert evicts.startswith("maxmemory-policy is allkeys-lru: ")
        assert "set it to noeviction" in evicts
        assert forgets.startswith("appendonly is no: ")
        assert [] == _warned(client, shard=1)  # shard 0 says it

        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendonly", "yes")

        assert [] == _warned(client)


def test_a_redis_that_tells_nothing_is_taken_as_it_is(server: RedisServer) -> None:
    """Where CONFIG is not allowed nothing is said, and nothing fails."""
    with connect(server.url) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "+@all", "-config")
        client.execute_command("AUTH", "worker", "pw")

        assert [] == _warned(client)
        assert [] == list(about({}))


def _set_limits(redis_url: str, keys: Keys, shards: int) -> list[str]:
    """Do as control does at its start, and return what it says of dropped shards."""
    process = make_process("control", redis_url, keys, shards=shards)
    with capture_logs() as logged:
        Rounds(process, Tasks(process)).set_limits()
    process.client.close()
    return [line["problem"] for line in logged if line["event"] == "shard.dropped"]


def test_a_dropped_shard_that_holds_something_is_named(
    redis_url: str, redis_client: Any, namespace: str
) -> None:
    """Fewer shards than before: each that is dropped is told with its counts, unless empty."""
    keys = Keys(namespace, 0)
    held = Documents(redis_client, Keys(namespace, 1))
    held.open()
    held.submit("a")

    assert [] == _set_limits(redis_url, keys, 3)

    (said,) = _set_limits(redis_url, keys, 1)

    assert said.startswith("shard 1 holds 1 document without an answer and 1 job ")
    assert "set DOCMILL_SHARDS to 3" in said
    assert [] == _set_limits(redis_url, keys, 1)


def test_a_folder_of_files_that_is_none_is_refused_at_the_start(redis_url: str, keys: Keys) -> None:
    """Control does not wait for the first task to find out."""
    process = make_process("control", redis_url, keys, files_dir="/nonexistent")
    with pytest.raises(ConfigError, match="DOCMILL_FILES_DIR is '/nonexistent'"):
        control.work(process)

    process.client.close()
