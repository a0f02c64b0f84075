"""The kernels, where this machine has them."""

import pytest

from engine.native.build import why_unavailable


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Build the kernels, or skip what tests them."""
    if reason := why_unavailable():
        pytest.skip(f"no CPU kernels: {reason}")
