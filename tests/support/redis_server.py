"""A real Redis for tests, started once per session on a unix socket in a private folder.

Needs neither torch nor the workers, so that the client's tests run in an environment of their own.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.redis_server import RedisServer, start_embedded


@contextmanager
def running_redis(*, is_durable: bool = False) -> Iterator[RedisServer]:
    """Run a server until the block ends; its folder is removed afterwards."""
    # not pytest's tmp_path: its long names do not fit into a socket path
    directory = Path(tempfile.mkdtemp(prefix="dm-test-"))
    server = start_embedded(directory, is_durable=is_durable)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
