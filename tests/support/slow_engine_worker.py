"""An engine worker whose fake engine takes its time, for tests that end it in mid-batch.

`python -m tests.support.slow_engine_worker SECONDS`: each batch takes that long before its first
answer. Everything else is the real worker, configured as it is.
"""

import sys

from engine.base import Capacity, Engine
from engine.fake import FakeEngine
from workers.engine_worker import work
from workers.models import ModelFiles
from workers.process import Process, run
from workers.settings import Settings


def _create(settings: Settings, files: ModelFiles) -> Engine:
    capacity = Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens)
    return FakeEngine(files.name, capacity=capacity, batch_delay_s=float(sys.argv[1]))


def _work(process: Process) -> None:
    work(process, _create)


if __name__ == "__main__":
    sys.exit(run("engine", _work))
