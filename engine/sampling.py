"""From scores to tokens: greedy, temperature and top-p, each row on its own.

Decides which token each row continues with. A sampled row draws from its own generator, seeded by
the row alone, so neither the batch nor its neighbours matter. A row without finite scores gets
None. May import torch, numpy and engine.base.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.base import Sampling

#: Tokens above the first of these weights, relative to the best token's, are nearly always enough
#: for top-p; flat distributions need more.
_LEAST_WEIGHTS = (1e-2, 1e-4, 0.0)

#: Weights that are summed at once.
_BLOCK = 256

_LEAST_TEMPERATURE = 1e-30

#: Stands for a token where there is none to be had.
_NONE = -1


class Chooser:
    """Chooses one row's tokens; holds the row's random generator."""

    def __init__(self, sampling: Sampling) -> None:
        # below the least, every other token's weight is zero in any case
        self._temperature = max(sampling.temperature, _LEAST_TEMPERATURE)
        self._top_p = sampling.top_p
        self.greedy = sampling.temperature == 0.0
        self._random = None if self.greedy else np.random.default_rng(sampling.seed)

    def draw(self, scores: NDArray[np.float32]) -> int:
        """Draw a token; `scores` is [V], finite apart from minus infinity."""
        assert self._random is not None
        with np.errstate(over="ignore"):  # what is far below the best has no weight
            weights = np.exp((scores - scores.max()) / self._temperature)
        if self._top_p >= 1.0:
            return _pick(weights, self._random.random())
        ids = likeliest(weights, self._top_p)
        return int(ids[_pick(weights[ids], self._random.random())])


def likeliest(weights: NDArray[np.float32], top_p: float) -> NDArray[np.int64]:
    """Return the tokens whose weights first reach `top_p` of all, the likeliest first.

    The highest weight is 1. Only as many tokens are sorted as may be needed.
    """
    needed = top_p * weights.sum(dtype=np.float64)
    for least in _LEAST_WEIGHTS:
        ids = np.flatnonzero(weights > least)
        if not least or weights[ids].sum(dtype=np.float64) >= needed:
            break
    ids = ids[np.argsort(-weights[ids], kind="stable")]
    reached = weights[ids].cumsum(dtype=np.float64)
    return ids[: int((reached < needed).sum()) + 1]


def _pick(weights: NDArray[np.float32], chance: float) -> int:
    """Return the place at which a share `chance`, below 1, of all weight is reached.

    Cost: one pass over the weights, which are summed block by block first.
    """
    blocks = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK), dtype=np.float64)
    target = chance * blocks.sum()
    block = _reached(blocks, target)
    start = block * _BLOCK
    return start + _reached(weights[start : start + _BLOCK], target - blocks[:block].sum())


def _reached(weights: NDArray[np.floating], target: float) -> int:
    """Return where the sum of weights exceeds `target`, never a place without weight."""
    at = int(np.searchsorted(weights.cumsum(dtype=np.float64), target, side="right"))
    return min(at, int(np.flatnonzero(weights)[-1]))


class Choices:
    """What follows at each of several positions, possibly several of one row.

    Shapes:
        scores: [B, V], any float dtype, any device.

    Cost: one transfer from the device, and one more if any row is sampled.
    """

    def __init__(self, scores: Tensor, choosers: Sequence[Chooser]) -> None:
        self._best = _best(scores)
        self._choosers = choosers
        sampled = [index for index, chooser in enumerate(choosers) if not chooser.greedy]
        rows = scores[sampled].float().cpu().numpy() if sampled else ()
        self._sampled = dict(zip(sampled, rows, strict=True))

    def is_finite(self, index: int) -> bool:
        """Say whether the scores at a position are finite."""
        return self._best[index] != _NONE

    def token(self, index: int) -> int | None:
        """Choose the token at a position; None if its scores are not finite.

        A sampled row draws, so positions must be asked for in a row's order, and only those that
        are reached.
        """
        if not self.is_finite(index):
            return None
        if index in self._sampled:
            return self._choosers[index].draw(self._sampled[index])
        return self._best[index]


def _best(scores: Tensor) -> list[int]:
    """Return the best token at each position, the first of equal ones; _NONE if not finite.

    The highest score is NaN or infinite exactly if some score is NaN, +inf, or all are -inf.
    """
    if scores.device.type == "cpu" and scores.dtype is torch.float32:
        rows = scores.numpy()  # whose argmax takes a tenth of torch's time
        ids = rows.argmax(-1)
        highest = np.take_along_axis(rows, ids[:, None], -1)[:, 0]
        return list(np.where(np.isfinite(highest), ids, _NONE).tolist())
    # in a quarter of argmax' time in bf16
    top, best = scores.max(-1)
    return list(best.where(top.isfinite(), _NONE).tolist())


def choose(scores: Tensor, choosers: Sequence[Chooser]) -> list[int | None]:
    """Choose the next token of each row; None for a row whose scores are not finite.

    Shapes:
        scores: [B, V], any float dtype, any device.
    """
    choices = Choices(scores, choosers)
    return [choices.token(index) for index in range(len(choosers))]
