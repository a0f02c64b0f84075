"""The service as a process, without a model, ready before a test begins."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running_service(state_dir: Path, **settings: object) -> Iterator["subprocess.Popen[str]"]:
    """Run `python -m workers.service` with the fake engine until the block ends.

    Its workers are ready before the block begins, and end with it.
    """
    chosen = {"engine": "fake", "state_dir": state_dir, "log_level": "warning"} | settings
    variables = {f"DOCMILL_{name.upper()}": str(value) for name, value in chosen.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.service"],
        cwd=ROOT,
        env=os.environ | variables,  # noqa: TID251 - a child inherits the test's environment
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = {"event": ""}
        while said["event"] != "ready":
            said = json.loads(process.stdout.readline() or '{"event": "ended"}')
            assert said["event"] not in ("fatal", "ended"), said
        draining = threading.Thread(target=process.stdout.read, daemon=True)
        draining.start()
        yield process
    finally:
        process.kill()
        process.wait()
    draining.join(10)
    process.stdout.close()
