"""One forward pass: parts of rows laid end to end.

Decides nothing; turns parts into the tensors and runs that a model and its attention read. May
import torch, numpy and the modules of this package below it.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.live import Part
from engine.loading import LoadedModel
from engine.slab import Slab
from engine.steps import Copy, PackedStep, Run


def compute(loaded: LoadedModel, slab: Slab, parts: Sequence[Part]) -> Tensor:
    """Compute the parts' tokens, which the slab holds from then on.

    Shapes:
        returns: [B, V], the scores wanted, part by part.
    """
    lengths = np.array([len(part.ids) for part in parts])
    ends = lengths.cumsum()
    starts, bases = _columns(parts)
    # a token's position is its place among the pass' tokens, moved by a distance of its part's own
    positions = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    where = positions + np.repeat(bases, lengths)
    ids = np.concatenate([part.ids for part in parts]).astype(np.int64)
    keep = [np.arange(end - part.num_scored, end) for end, part in zip(ends, parts, strict=True)]
    on_device = _to_device([ids, positions, where, np.concatenate(keep)], loaded.device)
    step = PackedStep(slab, on_device[2], _runs(parts), _copies(parts))
    for part in parts:
        part.row.slot.length = part.end
    return loaded.forward(on_device[0], on_device[1], on_device[3], step)


def _columns(parts: Sequence[Part]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = np.array([part.start for part in parts])
    return starts, np.array([part.row.slot.base for part in parts])


def _runs(parts: Sequence[Part]) -> list[Run]:
    """Return what attention goes by: consecutive decoding rows of a lane become one call there."""
    ends = list(accumulate(len(part.ids) for part in parts))
    return [
        Run(end - len(part.ids), end, part.row.slot.base, part.end, part.row.slot.stride)
        for end, part in zip(ends, parts, strict=True)
    ]


def _copies(parts: Sequence[Part]) -> list[Copy]:
    return [
        Copy(part.source.slot.base, part.row.slot.base, part.start)
        for part in parts
        if part.source is not None
    ]


def _to_device(arrays: Sequence[NDArray[np.int64]], device: torch.device) -> list[Tensor]:
    """Move arrays by one transfer, which on CUDA nothing waits for."""
    joined = torch.from_numpy(np.concatenate(arrays))
    if device.type == "cuda":
        joined = joined.pin_memory().to(device, non_blocking=True)
    return list(torch.split(joined, [len(array) for array in arrays]))
