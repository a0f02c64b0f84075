"""What a running engine does, pass by pass, seen from outside.

Decides where one looks: at the engine's own seams, the model's forward pass and a row's next token,
which are wrapped while something is measured. May import torch and the engine.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.answer import Answer
from engine.base import Row, RowDone, Sampling
from engine.loading import LoadedModel
from engine.torch_engine import TorchEngine


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass: when it began and ended, in monotonic seconds, and how many ids it got."""

    began: float
    ended: float
    num_ids: int


@dataclass(slots=True)
class Seen:
    """All passes, and the moments of each row's tokens."""

    passes: list[Pass] = field(default_factory=list)
    token_times: dict[str, list[float]] = field(default_factory=dict)

    @property
    def forward_s(self) -> float:
        """Seconds inside the model."""
        return sum(each.ended - each.began for each in self.passes)

    @property
    def num_ids(self) -> int:
        """Tokens handed to the model."""
        return sum(each.num_ids for each in self.passes)

    def gaps(self) -> list[float]:
        """Return the seconds between tokens that follow each other, of all rows."""
        return [gap for times in self.token_times.values() for gap in np.diff(times).tolist()]

    def step_times(self, num_rows: int) -> list[float]:
        """Return the seconds from one step of exactly so many ids to the next such step.

        So the time a step takes outside the model counts too.
        """
        pairs = zip(self.passes, self.passes[1:], strict=False)
        return [
            after.began - before.began
            for before, after in pairs
            if before.num_ids == after.num_ids == num_rows
        ]


@contextmanager
def watching() -> Iterator[Seen]:
    """Note every pass and every token while the block runs."""
    seen = Seen()
    forward, push = LoadedModel.forward, Answer.push

    def timed_forward(self: LoadedModel, ids: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        scores = forward(self, ids, *args, **kwargs)
        seen.passes.append(Pass(began, time.perf_counter(), ids.numel()))
        return scores

    def timed_push(self: Answer, token: int | None) -> Any:
        seen.token_times.setdefault(self.row.row_id, []).append(time.perf_counter())
        return push(self, token)

    LoadedModel.forward = timed_forward  # type: ignore[method-assign] # to watch it
    Answer.push = timed_push  # type: ignore[method-assign] # to watch it
    try:
        yield seen
    finally:
        LoadedModel.forward = forward  # type: ignore[method-assign] # as it was
        Answer.push = push  # type: ignore[method-assign] # as it was


@dataclass(frozen=True, slots=True)
class Ran:
    """Rows that were answered: how, in how many seconds, and what was seen meanwhile."""

    done: list[RowDone]
    seconds: float
    seen: Seen

    @property
    def num_decoded(self) -> int:
        """Tokens that were computed on to get a next one: all of an answer but its last."""
        return sum(each.num_tokens - 1 for each in self.done)


def run(engine: TorchEngine, rows: Sequence[Row], *, joining: Sequence[Row] = ()) -> Ran:
    """Answer rows; those `joining` wait until the engine asks for more."""
    waiting = list(joining)

    def refill(num_free: int) -> list[Row]:
        taken = waiting[:num_free]
        del waiting[:num_free]
        return taken

    with watching() as seen:
        started = time.perf_counter()
        events = list(engine.run(rows, refill))
        seconds = time.perf_counter() - started
    done = [event for event in events if isinstance(event, RowDone)]
    assert len(done) == len(events), "a row failed"
    return Ran(done, seconds, seen)


def random_rows(lengths: Sequence[int], max_tokens: int, vocab_size: int) -> list[Row]:
    """Return rows of random tokens, so that none begins as another does."""
    choose = np.random.default_rng(0)
    return [
        Row(
            f"r{number}",
            choose.integers(0, vocab_size, length, dtype=np.uint32),
            Sampling(max_tokens),
        )
        for number, length in enumerate(lengths)
    ]
