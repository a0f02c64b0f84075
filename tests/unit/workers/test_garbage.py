"""When garbage is collected."""

import gc
from collections.abc import Iterator

import pytest

from workers import garbage


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_nothing_is_collected_while_a_process_starts() -> None:
    """The collector is off inside the block, and on after it."""
    with garbage.left_alone():
        assert not gc.isenabled()

    assert gc.isenabled()


def test_the_collector_is_on_again_after_a_failed_start() -> None:
    """An engine that cannot be loaded leaves the process as it should be."""
    with pytest.raises(ValueError), garbage.left_alone():  # noqa: PT011 - our own
        raise ValueError

    assert gc.isenabled()


def test_what_the_start_made_is_never_looked_at_again() -> None:
    """Objects of before are in the collector's permanent generation."""
    gc.unfreeze()

    garbage.resume()

    assert gc.get_freeze_count() > 0
