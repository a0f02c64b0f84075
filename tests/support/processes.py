"""Real processes for tests, ended with the test whatever happens; their logs go to pytest."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(module: str, *arguments: str, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m module` with settings as `DOCMILL_*`; killed at the end if it still runs."""
    variables = {f"DOCMILL_{name.upper()}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | variables,  # noqa: TID251 - a child inherits the test's environment
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
