"""What the tests of single failures share: a scene with quick heartbeats."""

from collections.abc import Iterator

import pytest

from tests.chaos.scene import Scene, scene


@pytest.fixture
def stage() -> Iterator[Scene]:
    """A shard where a silent worker is dead after a second."""
    with scene(heartbeat_ttl_s=1.0, max_wait_s=0.01, grace_s=5.0) as stage:
        yield stage
