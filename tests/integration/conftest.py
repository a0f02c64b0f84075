"""What tests of the scripts share: one shard, and a worker that works on it by single calls.

Imports the workers' packages only where they are used: the client's tests run without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.support.redis_server import running_redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docmill.keys import Keys
    from tests.support.ready_documents import Documents
    from tests.support.script_worker import Worker


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test."""
    from tests.support.ready_documents import Documents

    return Documents(redis_client, keys)


@pytest.fixture
def worker(documents: Documents) -> Worker:
    """A worker on it."""
    from tests.support.script_worker import Worker

    return Worker(documents)


@pytest.fixture(scope="module")
def small_redis() -> Iterator[Any]:
    """A Redis of its own, whose memory the tests may call full."""
    with running_redis() as server:
        client = redis.Redis.from_url(server.url, protocol=2)
        yield client
        client.close()
