"""What every test shares: markers by folder, a clean environment, one real Redis, a namespace each.

Imports neither torch nor the workers' packages at the top, so that the client's tests run without
them.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings

from docmill.keys import Keys
from tests.support.redis_server import running_redis

for name in [name for name in os.environ if name.startswith("DOCMILL_")]:  # noqa: TID251
    del os.environ[name]  # noqa: TID251 - a developer's own settings must not reach the tests
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # noqa: TID251 - no test may reach a model hub
# tiny models gain nothing from threads; on busy cores two of them only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")  # noqa: TID251 - read by torch when it is imported

# how fast the machine is decides nothing about the code: pytest's own limit ends what hangs
settings.register_profile("docmill", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("docmill")

LEVELS = ("unit", "contract", "compat", "integration", "e2e", "chaos", "gpu", "packaging")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the folder it lies in."""
    for item in items:
        level = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if level in LEVELS:
            item.add_marker(level)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a real Redis that lives as long as the test session."""
    with running_redis() as server:
        yield server.url


@pytest.fixture
def namespace() -> str:
    """A namespace of the test's own, so that tests can share a Redis and run in parallel."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def keys(namespace: str) -> Keys:
    """The keys of this test's namespace."""
    return Keys(namespace)


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[Any]:
    """A connection to the session's Redis."""
    client = redis.Redis.from_url(redis_url, protocol=2)
    yield client
    client.close()
