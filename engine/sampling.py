"""From scores to tokens: greedy, temperature and top-p, each row on its own.

Decides which token each row continues with. A sampled row draws from its own generator, seeded by
the row alone, so neither the batch nor its neighbours matter. A row without finite scores gets
None. May import torch, numpy and engine.base.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.base import Sampling

#: Candidates looked at before the whole vocabulary is sorted; nearly always enough for top-p.
_CANDIDATES = 1024

#: Stands for a token where there is none to be had.
_NONE = -1


class Chooser:
    """Chooses one row's tokens; holds the row's random generator."""

    def __init__(self, sampling: Sampling) -> None:
        self._temperature = sampling.temperature
        self._top_p = sampling.top_p
        self.greedy = sampling.temperature == 0.0
        self._random = None if self.greedy else np.random.default_rng(sampling.seed)

    def draw(self, scores: Tensor) -> int:
        """Draw a token; `scores` is [V], finite, on the CPU."""
        assert self._random is not None
        probs = ((scores.double() - scores.max()) / self._temperature).softmax(-1)
        if self._top_p < 1.0:
            probs = keep_top_p(probs, self._top_p)
        cumulative = probs.cumsum(-1)
        target = self._random.random() * cumulative[-1].item()
        token = int(torch.searchsorted(cumulative, target, right=True))
        return min(token, int(probs.nonzero()[-1]))


def keep_top_p(probs: Tensor, top_p: float) -> Tensor:
    """Zero all but the likeliest tokens whose probabilities first reach `top_p`; [V]."""
    top, ids = probs.topk(min(_CANDIDATES, len(probs)))
    if top.sum() < top_p:
        top, ids = probs.sort(descending=True, stable=True)
    num_kept = int((top.cumsum(-1) < top_p).sum()) + 1
    kept = torch.zeros_like(probs)
    return kept.scatter_(0, ids[:num_kept], top[:num_kept])


class Choices:
    """What follows at each of several positions, possibly several of one row.

    Shapes:
        scores: [B, V], any float dtype, any device.

    Cost: one transfer from the device, and one more if any row is sampled.
    """

    def __init__(self, scores: Tensor, choosers: Sequence[Chooser]) -> None:
        # the first of equal scores, as argmax has it, in a quarter of argmax' time in bf16
        highest, best = scores.max(-1)
        # the highest score is NaN or infinite exactly if some score is NaN, +inf, or all are -inf
        self._best: list[int] = best.where(highest.isfinite(), _NONE).tolist()
        self._choosers = choosers
        sampled = [index for index, chooser in enumerate(choosers) if not chooser.greedy]
        self._sampled = dict(zip(sampled, scores[sampled].cpu() if sampled else (), strict=True))

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


def choose(scores: Tensor, choosers: Sequence[Chooser]) -> list[int | None]:
    """Choose the next token of each row; None for a row whose scores are not finite.

    Shapes:
        scores: [B, V], any float dtype, any device.
    """
    choices = Choices(scores, choosers)
    return [choices.token(index) for index in range(len(choosers))]
