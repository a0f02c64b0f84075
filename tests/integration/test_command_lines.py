"""The worker processes' command lines: what they describe and refuse."""

import subprocess
import sys

import pytest

_WORKERS = ("workers.preprocess_worker", "workers.engine_worker", "workers.control")


def _run(module: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("module", _WORKERS)
def test_a_worker_describes_itself(module: str) -> None:
    """Asked for help it says what it is, where its settings come from, and how it may end."""
    status, said = _run(module, "--help")

    assert 0 == status
    assert said.startswith(f"usage: python -m {module}")
    assert "DOCMILL_REDIS_URL" in said
    assert "78   it can never start" in said


@pytest.mark.timeout(60)
@pytest.mark.parametrize("module", _WORKERS)
def test_a_worker_refuses_what_it_does_not_know(module: str) -> None:
    """An unknown argument ends it before it starts anything."""
    status, said = _run(module, "--redis-url=redis://h")

    assert 2 == status
    assert "unrecognized arguments: --redis-url=redis://h" in said


@pytest.mark.timeout(60)
def test_a_worker_without_a_redis_says_what_to_set() -> None:
    """The message names the variable with an example, and the command that needs none."""
    status, said = _run("workers.control")

    assert 78 == status
    assert "DOCMILL_REDIS_URL=redis://HOST:6379/0" in said
    assert "docmill up" in said
