"""The containers' health check, against a real Redis."""

import json
import socket
import subprocess
import sys
from typing import Any

import pytest

from docmill.keys import Keys
from workers.health import problem

HOST = socket.gethostname()


def show(client: Any, keys: Keys, consumer: str, *, alive: bool = True, **changes: Any) -> None:
    """Enter a consumer as a worker process does."""
    shown = {"role": "engine", "host": HOST, "state": "ready"} | changes
    client.hset(keys.consumers, consumer, json.dumps(shown))
    if alive:
        client.set(keys.heartbeat(consumer), 1, px=60_000)


def test_a_ready_worker_with_a_heartbeat_is_healthy(redis_client: Any, keys: Keys) -> None:
    """A worker that is ready and alive serves."""
    show(redis_client, keys, "a-1-x")

    assert problem(redis_client, keys, "engine", HOST) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "loading"}, "engine is loading"),
        ({"state": "draining"}, "engine is draining"),
        ({"alive": False}, f"engine sends no heartbeat from {HOST}"),
        ({"role": "preprocess"}, f"engine sends no heartbeat from {HOST}"),
        ({"host": "elsewhere"}, f"engine sends no heartbeat from {HOST}"),
    ],
)
def test_others_are_not(
    redis_client: Any, keys: Keys, changes: dict[str, Any], expected: str
) -> None:
    """A worker that loads, drains, is silent, or is another's does not count."""
    show(redis_client, keys, "a-1-x", **changes)

    assert expected == problem(redis_client, keys, "engine", HOST)


def test_what_is_no_consumers_word_is_passed_over(redis_client: Any, keys: Keys) -> None:
    """Whatever somebody wrote among the consumers, the check tells of the real ones."""
    for name, value in ((b"\xff", b"{}"), (b"a", b"{no"), (b"b", b"[1]"), (b"c", b"{}")):
        redis_client.hset(keys.consumers, name, value)
        redis_client.set(b"%s:heartbeat:%s" % (keys.prefix.encode(), name), 1)
    show(redis_client, keys, "a-1-x")

    assert problem(redis_client, keys, "engine", HOST) is None


def test_the_command_tells_by_its_exit_status(
    redis_url: str, redis_client: Any, keys: Keys
) -> None:
    """The command exits 0 for a healthy role, and 1 with one line for another."""
    show(redis_client, keys, "a-1-x")

    assert (0, "") == check(redis_url, keys, "engine")
    assert (1, f"unhealthy: control sends no heartbeat from {HOST}\n") == check(
        redis_url, keys, "control"
    )


def test_a_worker_is_looked_for_in_its_own_shard(
    redis_url: str, redis_client: Any, namespace: str
) -> None:
    """A container that serves the second shard is healthy when its worker there is."""
    second = Keys(namespace, 1)
    show(redis_client, second, "a-1-x")

    assert (0, "") == check(redis_url, second, "engine", DOCMILL_SHARDS="2", DOCMILL_SHARD="1")
    assert 1 == check(redis_url, second, "engine")[0]


def test_a_redis_that_does_not_answer_is_unhealthy(keys: Keys) -> None:
    """Without Redis the check fails with one line that names the place."""
    status, said = check("redis://127.0.0.1:1/0", keys, "engine")

    assert 1 == status
    assert said.startswith("unhealthy: Redis at redis://127.0.0.1:1/0 ")
    assert 1 == said.count("\n")


def test_a_role_that_does_not_exist_is_refused(redis_url: str, keys: Keys) -> None:
    """A typing error in the command is not taken for a sick worker."""
    status, said = check(redis_url, keys, "foo")

    assert 2 == status
    assert "'foo'" in said


def check(redis_url: str, keys: Keys, role: str, **more: str) -> tuple[int, str]:
    """Run the command as the containers do."""
    done = subprocess.run(
        [sys.executable, "-m", "workers.health", role],
        env={"DOCMILL_REDIS_URL": redis_url, "DOCMILL_NAMESPACE": keys.namespace, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
