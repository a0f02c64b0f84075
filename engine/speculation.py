"""How many drafts each row computes in the next pass.

Decides by two figures alone: how often a row's drafts were right, and what a further token costs in
a pass, learned from passes and their seconds. With few rows a pass is bound by reading the weights
and drafts are nearly free; with many they are not. Pure: seconds are passed in, and no answer
depends on them. May import numpy, engine.drafts and engine.live.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.drafts import Drafter
from engine.live import LiveRow, Part

#: A draft must save this many times what it costs: estimates are rough.
_CAUTION = 1.25

#: Rows are late that have at least this share of what the latest row has to say.
_LATE = 0.9

#: Passes without parts of prompts that must be measured before anything is drafted.
_LEAST_PASSES = 4

#: Weight of what was learned before, pass by pass: the last 50 passes are what counts.
_MEMORY = 0.98


class PassCost:
    """What a pass costs: some seconds whatever it holds, some for each token and for each run.

    A run is several tokens of one row, which attention may have to take one by one.
    """

    def __init__(self) -> None:
        self._products = np.zeros((3, 3))
        self._targets = np.zeros(3)
        self._seconds = np.zeros(3)

    def observe(self, num_tokens: int, num_runs: int, seconds: float) -> None:
        """Learn from a pass. Cost: O(1)."""
        # relative to the pass' seconds, so that long passes do not drown short ones
        figures = np.array([1.0, num_tokens, num_runs]) / seconds
        self._products = self._products * _MEMORY + np.outer(figures, figures)
        self._targets = self._targets * _MEMORY + figures
        # a little of each figure's own square: what passes do not tell apart is shared evenly
        own = np.diag(np.diag(self._products) * 1e-3 + 1e-9)
        self._seconds = np.linalg.solve(self._products + own, self._targets).clip(0.0)

    @property
    def base(self) -> float:
        """Seconds for a pass of nothing."""
        return float(self._seconds[0])

    @property
    def per_token(self) -> float:
        """Seconds for each token."""
        return float(self._seconds[1])

    @property
    def per_run(self) -> float:
        """Seconds for each run of several tokens."""
        return float(self._seconds[2])

    def seconds(self, num_tokens: int, num_runs: int) -> float:
        """Return what a pass will take."""
        return float(self._seconds @ np.array([1.0, num_tokens, num_runs]))


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a row could draft.

    `num_drafts`: how many drafts there are. `acceptance`: how likely the first is right.
    `remaining`: tokens that the row may still say.
    """

    num_drafts: int
    acceptance: float
    remaining: int


def plan_drafts(prospects: Sequence[Prospect], cost: PassCost, *, drains: bool) -> list[int]:
    """Return how many drafts each row should compute, so that the batch is done soonest.

    A right draft saves its row one later token, and all rows a share of one later pass. Where no
    other row takes the place of one that ends (`drains`), only rows that have most to say save
    passes: who gets ahead of them waits for them, and does not draft until they have caught up.
    """
    most = max((each.remaining for each in prospects), default=0) if drains else 0
    late = [each.remaining >= most * _LATE for each in prospects]
    saved_s = cost.per_token + cost.base / max(1, sum(late))
    return [
        _worth(each, saved_s, cost) if is_late else 0
        for each, is_late in zip(prospects, late, strict=True)
    ]


def _worth(prospect: Prospect, saved_s: float, cost: PassCost) -> int:
    """Return how many drafts of a row save more than they cost; each needs those before it."""
    count, gain_s = 0, -cost.per_run
    while count < prospect.num_drafts:
        draft_s = prospect.acceptance ** (count + 1) * saved_s - _CAUTION * cost.per_token
        if draft_s <= 0:
            break
        count += 1
        gain_s += draft_s
    return count if gain_s > 0 else 0


class Speculation:
    """The drafts of one batch, at most `max_drafts` for each row and pass."""

    def __init__(self, max_drafts: int) -> None:
        self._max_drafts = max_drafts
        self._cost = PassCost()
        self._num_passes = 0

    def plan(self, rows: Sequence[LiveRow], *, drains: bool) -> list[list[int]]:
        """Return the drafts of each row, whose prompts are computed; see `plan_drafts`."""
        if not rows or not self._max_drafts or self._num_passes < _LEAST_PASSES:
            return [[] for _ in rows]
        proposals = [
            _drafter(live).propose(min(live.draft_room, self._max_drafts)) for live in rows
        ]
        prospects = [
            Prospect(len(ids), acceptance, live.num_remaining)
            for live, (ids, acceptance) in zip(rows, proposals, strict=True)
        ]
        counts = plan_drafts(prospects, self._cost, drains=drains)
        return [ids[:count] for (ids, _), count in zip(proposals, counts, strict=True)]

    def observe(self, parts: Sequence[Part], seconds: float) -> None:
        """Learn from a pass over these parts."""
        sizes = [len(part.ids) for part in parts]
        self._cost.observe(sum(sizes), sum(size > 1 for size in sizes), seconds)
        self._num_passes += all(part.num_scored == len(part.ids) for part in parts)


def _drafter(live: LiveRow) -> Drafter:
    """Return a row's drafter, made when it is first wanted. Cost: O(tokens), once."""
    if live.drafter is None:
        live.drafter = Drafter(live.prompt)
        for token in live.answer.token_ids:
            live.drafter.push(token)
    return live.drafter
