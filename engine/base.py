"""What an engine is to a worker: rows in, events out.

Decides the vocabulary only. An engine knows batches and rows, never jobs, queues or Redis. May
import docmill.errors and numpy.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from docmill.errors import EngineError

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a row's tokens are chosen. `temperature` 0 is greedy; `seed` None: fresh randomness."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt to answer.

    `prompt`: [T] uint32 token ids, T >= 1 and T + max_tokens <= the engine's context_len.
    `prefix_len`: leading tokens that other rows may share; a hint for reuse, never for results.
    """

    row_id: str
    prompt: NDArray[np.uint32]
    sampling: Sampling
    prefix_len: int = 0


@dataclass(frozen=True, slots=True)
class RowDone:
    """A row's answer. The end-of-text token and a matched stop string are not part of `text`.

    `num_tokens` counts generated tokens, the ending one included. Seconds are wall-clock:
    `prefill_s` from the start of the row's prefill to its first token, `decode_s` from there to its
    last.
    """

    row_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    num_tokens: int
    num_cached_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RowFailed:
    """A row that has no answer; its neighbours are not affected."""

    row_id: str
    error: EngineError


Event = RowDone | RowFailed

#: Asked for up to that many more rows while a batch runs; returns what should join, maybe nothing.
Refill = Callable[[int], Sequence[Row]]

#: Called before each forward pass, so that it must return at once: a sign of life. Returns the ids
#: of rows whose answers nobody wants any more; ids that the batch does not have are ignored.
Step = Callable[[], Collection[str]]


@dataclass(frozen=True, slots=True)
class Capacity:
    """What fits at once: prompt plus output tokens per row, rows, and tokens over all rows."""

    context_len: int
    max_rows: int
    max_batch_tokens: int


@runtime_checkable
class Engine(Protocol):
    """Runs rows through one model. Not thread-safe: one caller at a time."""

    @property
    def model_name(self) -> str:
        """The name the model is served under."""
        ...

    def capacity(self) -> Capacity:
        """Return what fits at once. Cost: O(1)."""
        ...

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer rows, yielding each event as its row ends; exactly one event per row.

        Rows given by `refill` join the running batch as slots get free. Rows named by `step` leave
        it at once, without an event, and change no other row's answer. Closing the iterator stops
        the work and frees its memory; rows without an event then have none.

        Raises:
            EngineError: The whole batch failed; rows without an event were not answered.
        """
        ...

    def warm(self, prefixes: Sequence[NDArray[np.uint32]]) -> None:
        """Run what makes the first real batch as fast as later ones."""
        ...

    def close(self) -> None:
        """Free the model and its memory; the engine cannot be used afterwards."""
        ...
