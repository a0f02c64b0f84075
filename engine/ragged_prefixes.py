"""Which rows of unequal length begin alike, so that what they share is computed once.

Decides from whom a row takes its beginning where a state cannot be cut back: only from a row that
halts exactly where they part, before it goes on. Pure: knows prompts, not states. May import numpy
and engine.sharing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.sharing import num_shared

#: Fewer tokens than this are computed: halting for them costs a pass.
MIN_SHARED = 32


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first `num_tokens` tokens are those of the row `source`."""

    source: int
    num_tokens: int


def plan_beginnings(prompts: Sequence[NDArray[np.uint32]]) -> list[Beginning | None]:
    """Say for each row which earlier one it takes its beginning from, None if from none.

    The source is the first of those that share most, so it does not itself begin later than they
    part: it computes the token before, and can halt there. A prompt's last token is always left
    to be computed, since its scores are needed.

    Cost: O(n²) comparisons of prompts.
    """
    plans: list[Beginning | None] = []
    for index, prompt in enumerate(prompts):
        shared = [min(num_shared(prompt, other), len(prompt) - 1) for other in prompts[:index]]
        most = max(shared, default=0)
        plans.append(Beginning(shared.index(most), most) if most >= MIN_SHARED else None)
    return plans
