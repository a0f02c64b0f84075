"""Stateful models on the paths that serve them, and what `generate` says to each row alone.

Decides which models, paths and rows; what must be equal is the tests' own. Each is made once in a
process. May import torch, transformers, numpy, pytest, engine and tests.support.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.base import Event, Refill, Row, RowDone, Sampling, Step
from engine.batch import RunningBatch
from engine.loading import LoadedModel, load
from engine.options import Limits
from engine.ragged_batch import RaggedBatch
from engine.ragged_setup import use_ragged
from engine.stateful import GroupedBatch
from tests.support.tiny_model import tiny_deepseek_v4
from tests.support.tiny_models.stateful import qwen3_next

#: The tiny DeepSeek-V4 compresses 4 and 16 tokens and looks back 16.
LENGTHS = (1, 3, 4, 5, 15, 16, 17, 33, 64, 90)
FEW = (4, 17, 9, 30)
MAX_TOKENS = 6

PATHS: dict[str, tuple[Callable[[], Path], type[RunningBatch]]] = {
    "deepseek_v4 ragged": (tiny_deepseek_v4, RaggedBatch),
    "qwen3_next ragged": (qwen3_next, RaggedBatch),
    "deepseek_v4 grouped": (tiny_deepseek_v4, GroupedBatch),
}

Tokens = dict[str, tuple[int, ...]]


def rows(lengths: Sequence[int], **sampling: Any) -> list[Row]:
    """Build rows of these prompt lengths; what a row says depends on its length alone."""
    settings = Sampling(**({"max_tokens": MAX_TOKENS} | sampling))
    return [
        Row(
            f"r{length}",
            np.random.default_rng(length).integers(5, 320, length).astype(np.uint32),
            settings,
        )
        for length in lengths
    ]


@dataclass(eq=False, slots=True)
class Served:
    """A model on one path, and what `generate` says to each row alone."""

    loaded: LoadedModel
    batch: type[RunningBatch]
    alone: Tokens

    def events(
        self,
        batch: Sequence[Row],
        refill: Refill | None = None,
        step: Step | None = None,
        **limits: Any,
    ) -> dict[str, Event]:
        """Run rows; return what became of each."""
        running = self.batch(self.loaded, Limits(**limits), refill, step)
        return {event.row_id: event for event in running.run(batch)}

    def tokens(self, batch: Sequence[Row], *asked: Any, **limits: Any) -> Tokens:
        """Run rows, none of which may fail; return what each says."""
        events = self.events(batch, *asked, **limits)
        answers = said(events)
        assert answers.keys() == events.keys(), events
        return answers

    def one_by_one(self, batch: Sequence[Row]) -> Tokens:
        """Run each row in a batch of its own."""
        return {key: ids for row in batch for key, ids in self.tokens([row]).items()}

    def expected(self, batch: Sequence[Row]) -> Tokens:
        """Return what rows say alone."""
        return {row.row_id: self.alone[row.row_id] for row in batch}


def said(events: dict[str, Event]) -> Tokens:
    """Return the tokens of the rows that have an answer."""
    return {key: each.token_ids for key, each in events.items() if isinstance(each, RowDone)}


@cache
def served_on(path: str) -> Served:
    """Return a model on one of `PATHS`."""
    make, batch = PATHS[path]
    loaded = load(make(), torch.device("cpu"), torch.float32, None)
    alone = {}
    for row in rows(sorted({*LENGTHS, *FEW})):
        ids = torch.from_numpy(row.prompt.astype(np.int64))[None]
        out = loaded.model.generate(ids, do_sample=False, max_new_tokens=MAX_TOKENS)
        alone[row.row_id] = tuple(out[0, len(row.prompt) :].tolist())
    if batch is RaggedBatch:
        assert use_ragged(loaded) is None
    return Served(loaded, batch, alone)


def watch(served: Served, patch: pytest.MonkeyPatch, see: Callable[[int], None]) -> None:
    """Show `see` how many tokens each pass of the model computes, before it does."""
    forward = served.loaded.model.forward

    def watched(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        see(input_ids.numel())
        return forward(input_ids=input_ids, **kwargs)

    patch.setattr(served.loaded.model, "forward", watched)
