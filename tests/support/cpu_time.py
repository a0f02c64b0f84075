"""Processor time of a piece of work, where a test guards against squares and cubes."""

import gc
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Return the least processor time of several runs.

    Nothing is collected meanwhile: in a long test session a collection goes through all that
    other tests have left, and takes longer than the work.
    """
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            started = time.process_time()
            work()
            times.append(time.process_time() - started)
    finally:
        gc.enable()
    return min(times)
