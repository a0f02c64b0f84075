"""What the tests of stateful models have in common."""

import pytest

from tests.support.stateful import PATHS, Served, served_on, watch


@pytest.fixture(params=PATHS)
def served(request: pytest.FixtureRequest) -> Served:
    """Each model on each path."""
    return served_on(request.param)


@pytest.fixture
def passes(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each pass of the model computes."""
    counts: list[int] = []
    watch(served, monkeypatch, counts.append)
    return counts
