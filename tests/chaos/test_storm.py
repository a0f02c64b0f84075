"""A storm short enough for every run of the tests; `make chaos` runs the long one."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.piles import Temper
from tests.chaos.report import new_seed, shown
from tests.chaos.storm import Plan, Storm


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for logs and for Redis' data; not pytest's, whose names are long for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dm-chaos-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# far more than it takes: what is wrong is to be told by the storm, not by the clock
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("temper", "num_kills"), [("mild", 40), ("harsh", 25)])
def test_nothing_is_lost_or_doubled_in_a_storm(
    folder: Path, temper: Temper, num_kills: int
) -> None:
    """Whatever is killed, frozen or cut off, each document has one result, and the right one.

    FLD-L02: nothing stays pending or locked afterwards, and the service answers. Where a document
    has one delivery only, those given up by bad luck are let run again until none has failed.
    """
    seed = new_seed()
    tally = Storm(Plan(seed, num_kills, temper, round_kills=num_kills), folder, print).run()
    report = list(shown(tally, folder))

    assert tally.verdict.is_clean, "\n".join([f"CHAOS_SEED={seed}", *report])
    assert num_kills <= tally.kills.total()
    assert 0 < tally.verdict.num_documents
