"""What the client's tests share: a client, and a worker that needs no model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from docmill import Client
from docmill.cli import app
from docmill.keys import Keys
from tests.support.canned_worker import CannedWorker

#: Runs `docmill` with these arguments.
Command = Callable[..., Result]


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    """A client in the test's own namespace."""
    with Client(redis_url, namespace) as client:
        yield client


@pytest.fixture
def worker(redis_client: Any, keys: Keys) -> CannedWorker:
    """A worker that answers in capital letters when it is told to."""
    return CannedWorker(redis_client, keys)


@pytest.fixture
def docmill(redis_url: str, namespace: str, tmp_path: Path) -> Command:
    """The command line, in this process, speaking to the test's own namespace."""

    def run(*arguments: object) -> Result:
        here = ["--redis-url", redis_url, "--namespace", namespace, "--state-dir", str(tmp_path)]
        return CliRunner().invoke(app.app, [*map(str, arguments), *here])

    return run
