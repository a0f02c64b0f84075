"""An engine worker whose engine takes its time in odd ways, and notes what it answers.

`python -m tests.chaos.odd_engine sleeps|hogs|loads SECONDS FILE`: each batch takes that long before
its first answer; one that hogs holds the interpreter all the while, so that no other thread of the
process runs. One that loads takes that long to load, and no time later. Each row that is answered
adds a line to FILE. Everything else is the real worker.
"""

import sys
import time
from pathlib import Path

from engine.base import Capacity, Engine, Row
from engine.fake import FakeEngine
from workers.engine_worker import work
from workers.models import ModelFiles
from workers.process import Process, run
from workers.settings import Settings

_STEP = 20_000_000


def hog(seconds: float) -> None:
    """Hold the interpreter: the loop runs inside one C call, and lets go only between calls.

    What other threads get in between is a moment of some tenths of a second's.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(seconds)  # nobody gets a turn between two calls either
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        sum(range(_STEP))
    sys.setswitchinterval(interval)


def _create(settings: Settings, files: ModelFiles) -> Engine:
    way, seconds, notes = sys.argv[1:]
    if way == "loads":
        time.sleep(float(seconds))
        seconds = "0"

    def note(row: Row) -> None:
        with Path(notes).open("a", encoding="utf-8") as out:
            out.write(f"{row.row_id}\n")

    return FakeEngine(
        files.name,
        capacity=Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens),
        batch_delay_s=float(seconds),
        fault=note,
        sleep=hog if way == "hogs" else time.sleep,
    )


def _work(process: Process) -> None:
    work(process, _create)


if __name__ == "__main__":
    sys.exit(run("engine", _work))
