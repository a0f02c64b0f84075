"""A row of the running batch, and what a pass computes of it.

Decides nothing; holds together a row's answer, its place and its drafts. May import the modules of
this package below it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.answer import Answer
from engine.base import Event
from engine.drafts import Drafter
from engine.slab import Slot


@dataclass(eq=False, slots=True)
class LiveRow:
    """A row that has a place in the slab, which holds its first `slot.length` tokens.

    `shares`: whether it may begin with what another row has computed. `drafts`: whether guesses at
    its next tokens may be computed; its `drafter` is made when it is first asked.
    """

    answer: Answer
    slot: Slot
    shares: bool = True
    drafts: bool = True
    drafter: Drafter | None = None

    @property
    def prompt(self) -> NDArray[np.uint32]:
        """The row's prompt."""
        return self.answer.row.prompt

    @property
    def in_prefill(self) -> bool:
        """Whether part of the prompt has still to be computed."""
        return self.slot.length < len(self.prompt)

    @property
    def num_known(self) -> int:
        """How many tokens the prompt and the answer have so far."""
        return len(self.prompt) + len(self.answer.token_ids)

    @property
    def num_remaining(self) -> int:
        """How many tokens the row may still say."""
        return self.answer.row.sampling.max_tokens - len(self.answer.token_ids)

    @property
    def draft_room(self) -> int:
        """How many drafts fit between the newest token and the last that the row may say."""
        return self.num_remaining - 1 if self.drafts else 0

    def push(self, token: int | None) -> Event | None:
        """Take the next token; return the event if the row has ended."""
        event = self.answer.push(token)
        if self.drafter is not None and token is not None and event is None:
            self.drafter.push(token)
        return event


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Tokens that a pass computes of one row, from its token `start` on.

    The scores after the last `num_scored` of them are wanted. A row that begins as `source` does
    has its tokens before `start` copied from there in the same pass.
    """

    row: LiveRow
    start: int
    ids: NDArray[np.uint32] | list[int]
    num_scored: int
    source: LiveRow | None = None

    @property
    def drafts(self) -> list[int]:
        """Those of the tokens that are guesses."""
        return [int(token) for token in self.ids[len(self.ids) - self.num_scored + 1 :]]

    @property
    def end(self) -> int:
        """How many tokens of the row the slab holds after the pass."""
        return self.start + len(self.ids)
