"""The second path: a model with transformers' own cache, for what cannot be packed.

Decides which rows run together: only rows whose prompts have exactly the same length, because such
caches pool tokens and padding would change answers. Rows that end stay in the computation, unread,
until their group does. May import torch, numpy and the modules of this package below it.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from docmill.errors import EngineFault
from engine.answer import Answer
from engine.base import Event, Row
from engine.batch import RunningBatch
from engine.device import is_out_of_memory
from engine.sampling import choose


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
            num_tokens += answer.num_needed
            fits = len(group) < self._max_rows and num_tokens <= self._limits.max_batch_tokens
            alike = len(answer.row.prompt) == length
            (group if not group or (alike and fits) else others).append(answer)
        self._waiting = others
        return group

    def _run_or_split(self, group: list[Answer]) -> Iterator[Event]:
        """Run a group; out of memory, begin again with half of it, or give up a single row."""
        running = dict(enumerate(group))
        try:
            yield from self._run_group(running)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        if running:
            yield from self._start_smaller(list(running.values()), len(group))

    def _run_group(self, running: dict[int, Answer]) -> Iterator[Event]:
        """Answer the rows of a group; each is taken out of `running` as it ends."""
        for answer in running.values():
            answer.start()
        cache = DynamicCache(config=self._loaded.model.config)
        prompts = np.stack([answer.row.prompt.astype(np.int64) for answer in running.values()])
        ids = torch.from_numpy(prompts).to(self._loaded.device)
        while self._still_wanted(running):
            scores = self._forward(ids, cache)
            last = ids[:, -1].tolist()  # rows that have ended go on with what they had
            indices = list(running)
            tokens = choose(scores[indices], [running[index].chooser for index in indices])
            ended = []
            for index, token in zip(indices, tokens, strict=True):
                event = running[index].push(token)
                last[index] = last[index] if token is None else token
                if event is not None:
                    ended.append(event)
                    del running[index]
            yield from ended
            ids = torch.tensor(last, device=self._loaded.device)[:, None]

    def _still_wanted(self, running: dict[int, Answer]) -> bool:
        """Let rows leave that the caller wants no more; say whether any is left."""
        if running and (leaving := self._ask_who_leaves()):
            for index, answer in list(running.items()):
                if answer.row.row_id in leaving:
                    del running[index]
        return bool(running)

    def _forward(self, ids: Tensor, cache: DynamicCache) -> Tensor:
        try:
            with torch.inference_mode():
                output = self._loaded.model(
                    input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1
                )
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise EngineFault(f"the model failed: {type(error).__name__}: {error}") from error
        scores: Tensor = output.logits[:, -1]
        return scores
