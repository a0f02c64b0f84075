"""What this machine can do at best, measured in the run that is compared with it.

Decides two limits: bf16 matrix products, the best of a large square one and of the model's own
shapes, and reading memory, from a tensor that no cache holds. Virtual machines change: reading was
32 GB/s and 48 GB/s within seconds on one of them, so limits are measured before and after what is
compared with them. May import torch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from bench.decode_counts import Shape

T = TypeVar("T")

_SQUARE = 2048
#: Rows of the model's own products: one pass of a chunked prefill.
_ROWS = 2048
#: Far more than the 32 MiB of last-level cache of the machines this has run on.
_READ_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    """Operations a second of bf16 products, and bytes a second read from memory."""

    flops_per_s: float
    read_bytes_per_s: float

    def roofline_s(self, flops: float, num_bytes: float) -> float:
        """Return the seconds that work takes at least, whichever limit binds."""
        return max(flops / self.flops_per_s, num_bytes / self.read_bytes_per_s)


def measure(shape: Shape, repeats: int) -> Machine:
    """Measure both limits; the best of the repeats counts."""
    return Machine(_flops_per_s(shape, repeats), _read_bytes_per_s(repeats))


def beside(shape: Shape, repeats: int, work: Callable[[], T]) -> tuple[T, Machine]:
    """Do work; return what comes of it, and the better of the machine before it and after it."""
    before = measure(shape, repeats)
    done = work()
    return done, best(before, measure(shape, repeats))


def best(first: Machine, second: Machine) -> Machine:
    """Return the better of each limit."""
    return Machine(
        max(first.flops_per_s, second.flops_per_s),
        max(first.read_bytes_per_s, second.read_bytes_per_s),
    )


def _flops_per_s(shape: Shape, repeats: int) -> float:
    speeds = []
    sizes = [(_SQUARE, _SQUARE, _SQUARE), *((_ROWS, *linear) for linear in shape.linears)]
    for rows, outputs, inputs in sizes:
        left = torch.randn(rows, inputs, dtype=torch.bfloat16)
        weight = torch.randn(outputs, inputs, dtype=torch.bfloat16)
        spent = _least_s(partial(torch.nn.functional.linear, left, weight), repeats)
        speeds.append(2 * rows * outputs * inputs / spent)
    return max(speeds)


def _read_bytes_per_s(repeats: int) -> float:
    values = torch.ones(_READ_BYTES // 4, dtype=torch.float32)
    return _READ_BYTES / _least_s(values.sum, repeats)


def _least_s(work: Callable[[], object], repeats: int) -> float:
    """Return the least seconds that work took, after one run that warms up."""
    work()
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return min(spent)
