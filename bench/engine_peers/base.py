"""What bench/engine.py and an engine's process say to each other: lines of JSON.

Decides the form of a piece of work and the order of what happens: the process reads its task from a
file, loads the model, warms up, says that it is ready and then, each time that a line names a
workload, answers the whole of it and says how long that took. In between it waits for a line and
computes nothing. May import the standard library, so that it runs in every environment.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

#: Token ids that continue each prompt, by its id.
Answers = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to continue, greedily, by exactly `max_tokens` tokens."""

    prompt_id: str
    ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Task:
    """What a process has to do.

    `model`: a directory whose configuration names no end of text. `gguf_dir`: the same model's GGUF
    files. `warm`: prompts that are in no workload.
    """

    model: Path
    gguf_dir: Path
    threads: int
    dtype: str
    warm: tuple[Prompt, ...]
    workloads: Mapping[str, tuple[Prompt, ...]]

    def write(self, path: Path) -> None:
        """Write the task where a process can read it."""
        path.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Task":
        """Read what `write` wrote."""
        record = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            model=Path(record["model"]),
            gguf_dir=Path(record["gguf_dir"]),
            threads=record["threads"],
            dtype=record["dtype"],
            warm=_prompts(record["warm"]),
            workloads={name: _prompts(each) for name, each in record["workloads"].items()},
        )


def _prompts(records: Sequence[dict[str, Any]]) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(each["prompt_id"], tuple(each["ids"]), each["max_tokens"]) for each in records
    )


class Engine(Protocol):
    """An engine with its model loaded."""

    def forget(self) -> None:
        """Drop what is kept of earlier prompts, so that each run finds cold caches."""
        ...

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Continue all prompts, in the order and batches that suit it; end of text is no end."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def serve(engine: Engine, task: Task, orders: TextIO, reports: TextIO) -> None:
    """Answer workloads as they are ordered, until there are no more orders."""
    try:
        engine.answer(task.warm)
        _say(reports, {"ready": True})
        for line in orders:
            prompts = task.workloads[line.strip()]
            engine.forget()
            engine.answer(task.warm)  # forgetting may have meant to start anew
            started = time.perf_counter()
            answers = engine.answer(prompts)
            seconds = time.perf_counter() - started
            _say(reports, {"seconds": seconds, "answers": answers})
    finally:
        engine.close()


def _say(reports: TextIO, message: dict[str, object]) -> None:
    print(json.dumps(message), file=reports, flush=True)


def take_standard_output() -> TextIO:
    """Return standard output for reports alone: what libraries print goes to standard error."""
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return reports
