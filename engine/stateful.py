"""The last path: a model with transformers' own cache, for what no other path serves right.

Decides which rows run together: only rows whose prompts have exactly the same length, because such
caches pool tokens and padding would change answers. Prompts are computed in chunks; rows that end
leave, and none join. May import torch, numpy and the modules of this package below it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from engine.answer import Answer
from engine.base import Event, Row
from engine.batch import RunningBatch
from engine.device import is_out_of_memory
from engine.loading import model_failures
from engine.sampling import choose
from engine.stateful_forward import forward_group


class GroupedBatch(RunningBatch):
    """One call of `run`: groups of rows of equal length, one after another."""

    def run(self, rows: Sequence[Row]) -> Iterator[Event]:
        """Answer rows; see `engine.base.Engine.run`."""
        yield from self._accept(rows)
        while True:
            more = self._ask_for_more()
            yield from self._accept(more)
            if self._waiting:
                yield from self._run_or_split(self._next_group())
            elif not more:
                return

    def _next_group(self) -> list[Answer]:
        """Take the oldest row and those of its length, as many as rows and tokens allow."""
        length = len(self._waiting[0].row.prompt)
        group: list[Answer] = []
        others: deque[Answer] = deque()
        num_tokens = 0
        for answer in self._waiting:
            alike = not group or len(answer.row.prompt) == length
            fits = num_tokens + answer.num_needed <= self._limits.max_batch_tokens
            if alike and (not group or (fits and len(group) < self._max_rows)):
                group.append(answer)
                num_tokens += answer.num_needed
            else:
                others.append(answer)
        self._waiting = others
        return group

    def _run_or_split(self, group: list[Answer]) -> Iterator[Event]:
        """Run a group; out of memory, begin again with half of it, or give up a single row."""
        running = list(group)
        try:
            yield from self._run_group(running)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        if running:
            yield from self._start_smaller(running, len(group))

    def _run_group(self, running: list[Answer]) -> Iterator[Event]:
        """Answer the rows of a group; each is taken out of `running` as it ends."""
        for answer in running:
            answer.start()
        cache = DynamicCache(config=self._loaded.model.config)
        prompts = np.stack([answer.row.prompt.astype(np.int64) for answer in running])
        ids = torch.from_numpy(prompts).to(self._loaded.device)  # not computed yet: [B, T]
        past = 0
        while True:
            leaving = self._ask_who_leaves()
            kept = [i for i, each in enumerate(running) if each.row.row_id not in leaving]
            ids = _keep(running, cache, ids, kept)
            if not running:
                return
            part = ids[:, : self._limits.chunk_tokens]
            with model_failures():
                scores = forward_group(self._loaded, part, past, cache)
            past += part.shape[1]
            ids = ids[:, part.shape[1] :]
            if not ids.shape[1]:
                tokens = choose(scores, [answer.chooser for answer in running])
                events = [each.push(token) for each, token in zip(running, tokens, strict=True)]
                # a row without a token has ended, so what stands for it here is never computed
                ids = torch.tensor([[token or 0] for token in tokens], device=ids.device)
                kept = [index for index, event in enumerate(events) if event is None]
                ids = _keep(running, cache, ids, kept)
                yield from filter(None, events)


def _keep(running: list[Answer], cache: DynamicCache, ids: Tensor, kept: Sequence[int]) -> Tensor:
    """Let all but some rows leave a group; return their part of `ids`."""
    if len(kept) < len(running):
        running[:] = [running[index] for index in kept]
        rows: Any = torch.tensor(kept, dtype=torch.int64, device=ids.device)
        with torch.inference_mode():
            ids = ids[rows]
            if running:
                cache.reorder_cache(rows)
    return ids
