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

from docmill.errors import DeviceOutOfMemory, EngineError
from engine.answer import Answer, without_refused
from engine.base import Event, Refill, Row, RowFailed
from engine.device import is_out_of_memory, release_memory
from engine.loading import LoadedModel
from engine.options import Limits
from engine.sampling import choose


class GroupedBatch:
    """One call of `run`: groups of rows of equal length, one after another."""

    def __init__(self, loaded: LoadedModel, limits: Limits, refill: Refill | None) -> None:
        self._loaded = loaded
        self._limits = limits
        self._max_rows = limits.max_rows
        self._refill = refill
        self._waiting: deque[Answer] = deque()

    def run(self, rows: Sequence[Row]) -> Iterator[Event]:
        """Answer rows; see `engine.base.Engine.run`."""
        yield from self._accept(rows)
        while True:
            free = self._max_rows - len(self._waiting)
            more = self._refill(free) if self._refill is not None and free > 0 else ()
            yield from self._accept(more)
            if self._waiting:
                yield from self._run_or_split(self._next_group())
            elif not more:
                return

    def _accept(self, rows: Sequence[Row]) -> Iterator[Event]:
        loaded = self._loaded
        return without_refused(
            rows,
            loaded.context_len,
            loaded.vocab_size,
            lambda row: self._waiting.append(Answer(row, loaded.detokenizer, loaded.eos_ids)),
        )

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
        if not running:
            return
        release_memory()
        if len(group) > 1:
            self._max_rows = max(1, len(group) // 2)
            self._waiting.extendleft(answer.afresh() for answer in reversed(running.values()))
            return
        message = f"out of memory with this document alone ({group[0].num_needed} tokens)"
        yield RowFailed(group[0].row.row_id, DeviceOutOfMemory(message, rows=1))

    def _run_group(self, running: dict[int, Answer]) -> Iterator[Event]:
        """Answer the rows of a group; each is taken out of `running` as it ends."""
        for answer in running.values():
            answer.start()
        cache = DynamicCache(config=self._loaded.model.config)
        prompts = np.stack([answer.row.prompt.astype(np.int64) for answer in running.values()])
        ids = torch.from_numpy(prompts).to(self._loaded.device)
        while running:
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

    def _forward(self, ids: Tensor, cache: DynamicCache) -> Tensor:
        try:
            with torch.inference_mode():
                output = self._loaded.model(
                    input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1
                )
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise EngineError(f"the model failed: {type(error).__name__}: {error}") from error
        scores: Tensor = output.logits[:, -1]
        return scores
