"""A storm short enough for every run of the tests; `make chaos` runs the long one."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
@pytest.mark.parametrize("part", range(3))
def test_nothing_is_lost_or_doubled_in_a_storm(folder: Path, part: int) -> None:
    """Whatever is killed, frozen or cut off, each document has one result, and the right one.

    FLD-L02: nothing stays pending or locked afterwards, and the service answers.
    """
    storm = Storm(Plan(f"{new_seed()}.{part}", num_kills=25, round_kills=25), folder, print)
    tally = storm.run()
    report = list(shown(tally, storm.watch.times_s, folder))

    assert tally.verdict.is_clean, "\n".join([f"CHAOS_SEED={storm.plan.seed}", *report])
    assert 25 <= tally.kills.total()
    assert 0 < tally.verdict.num_documents
