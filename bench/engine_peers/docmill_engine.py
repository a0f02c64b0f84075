"""docmill's engine, given what its pipeline would give it: each distinct prompt once.

Finding the exact duplicates and copying their answers is part of the timed work. May import the
engine.
"""

from collections.abc import Sequence

import numpy as np

from bench.engine_peers.base import Answers, Prompt, Task
from engine.base import Row, RowDone, Sampling
from engine.options import Limits
from engine.torch_engine import TorchEngine


def load(task: Task, mode: str) -> "Docmill":
    """Load the model; `mode` is a dtype other than the task's, or nothing."""
    engine = TorchEngine.load(
        task.model, dtype=mode or task.dtype, threads=task.threads, limits=Limits()
    )
    engine.warm([])
    return Docmill(engine)


class Docmill:
    """One `TorchEngine`; it keeps nothing from one batch to the next."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine

    def forget(self) -> None:
        """There is nothing to forget."""

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Answer the first of each kind, and its duplicates with its answer."""
        rows, first = without_duplicates(rows_of(prompts))
        done: Answers = {}
        for event in self._engine.run(rows):
            assert isinstance(event, RowDone), event
            done[event.row_id] = list(event.token_ids)
        return {prompt_id: done[known] for prompt_id, known in first.items()}

    def close(self) -> None:
        """Free the model."""
        self._engine.close()


def rows_of(prompts: Sequence[Prompt]) -> list[Row]:
    """Return prompts as the engine takes them."""
    return [
        Row(prompt.prompt_id, np.array(prompt.ids, dtype=np.uint32), Sampling(prompt.max_tokens))
        for prompt in prompts
    ]


def without_duplicates(rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """Return the first row of each kind, and for each row the id of the first that equals it."""
    known: dict[tuple[bytes, Sampling], str] = {}
    first = {
        row.row_id: known.setdefault((row.prompt.tobytes(), row.sampling), row.row_id)
        for row in rows
    }
    return [row for row in rows if first[row.row_id] == row.row_id], first
