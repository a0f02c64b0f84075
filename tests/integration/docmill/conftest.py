"""What the client's tests share: a client, and a worker that needs no model."""

from collections.abc import Iterator
from typing import Any

import pytest

from docmill import Client
from docmill.keys import Keys
from tests.support.canned_worker import CannedWorker


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    """A client in the test's own namespace."""
    with Client(redis_url, namespace) as client:
        yield client


@pytest.fixture
def worker(redis_client: Any, keys: Keys) -> CannedWorker:
    """A worker that answers in capital letters when it is told to."""
    return CannedWorker(redis_client, keys)
