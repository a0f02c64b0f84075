"""A job's counts, as its hash holds them."""

import pytest

from docmill.status import FIELDS, JobStatus, read_consumers


def status(**values: int | float) -> JobStatus:
    """Read a job's hash that holds these fields."""
    found = {"created_at": 1.5, "sealed": 1} | values
    told = [str(found[name]).encode() if name in found else None for name in FIELDS]
    read = JobStatus.from_wire("job", told)
    assert read is not None
    return read


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"sealed": 0, "submitted": 1}, "open"),
        ({"submitted": 1}, "running"),
        ({"submitted": 1, "paused_at": 2.5}, "paused"),
        ({"sealed": 0, "submitted": 1, "paused_at": 2.5}, "paused"),
        ({"submitted": 2, "running": 1, "cancelled": 1, "cancelled_at": 2.5}, "running"),
        ({"submitted": 1, "succeeded": 1}, "finished"),
        ({"submitted": 1, "succeeded": 1, "paused_at": 2.5}, "finished"),
        ({"submitted": 1, "cancelled": 1, "cancelled_at": 2.5}, "cancelled"),
    ],
)
def test_the_state_is_one_word(values: dict[str, int | float], state: str) -> None:
    """The end of a job outweighs its pause, and a pause everything else."""
    assert state == status(**values).state


def test_a_pause_is_told_until_the_end() -> None:
    """A job whose last documents ended while it was paused is not waited for any more."""
    assert status(submitted=2, succeeded=1, paused_at=2.5).is_paused
    assert not status(submitted=1, succeeded=1, paused_at=2.5).is_paused


def test_a_program_gets_counts_and_moments() -> None:
    """The dictionary holds every count, and each moment or None."""
    told = status(submitted=3, failed=1, running=1, paused_at=2.5).to_dict()

    assert ("paused", 3, 1, 1, 1) == tuple(
        told[name] for name in ("state", "submitted", "failed", "running", "waiting")
    )
    assert (1.5, 2.5, None, None) == tuple(
        told[f"{name}_at"] for name in ("created", "paused", "cancelled", "finished")
    )


def test_no_job_has_no_status() -> None:
    """A hash without the moment at which the job was opened is none."""
    assert JobStatus.from_wire("job", [None] * len(FIELDS)) is None


def test_what_is_no_consumers_word_is_passed_over() -> None:
    """Anybody may have written anything beside what workers say of themselves."""
    shown = {b"\xff": b"{}", b"a": b"{no", b"b": b"[1]", b"c": b"\xff", b"d": b'{"role": "engine"}'}

    assert read_consumers(shown) == {
        "d": {"role": "engine", "host": None, "pid": None, "state": None}
    }
