"""A row of the running batch, and what a pass computes of it.

Decides nothing; holds together a row's answer, its place and its drafts. May import the modules of
this package below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.answer import Answer
from engine.slab import Slot


@dataclass(eq=False, slots=True)
class LiveRow:
    """A row that has a place in the slab, which holds its first `slot.length` tokens.

    `shares`: whether it may begin with what another row has computed.
    """

    answer: Answer
    slot: Slot
    shares: bool = True

    @property
    def prompt(self) -> NDArray[np.uint32]:
        """The row's prompt."""
        return self.answer.row.prompt

    @property
    def in_prefill(self) -> bool:
        """Whether part of the prompt has still to be computed."""
        return self.slot.length < len(self.prompt)


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Tokens that a pass computes of one row, from its token `start` on.

    The scores after the last `num_scored` of them are wanted. A row that begins as `source` does
    has its tokens before `start` copied from there in the same pass.
    """

    row: LiveRow
    start: int
    ids: NDArray[np.uint32] | Sequence[int]
    num_scored: int
    source: LiveRow | None = None

    @property
    def end(self) -> int:
        """How many tokens of the row the slab holds after the pass."""
        return self.start + len(self.ids)
