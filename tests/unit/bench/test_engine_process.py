"""An engine's process: what it is told, what it answers, and what is done in which order."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.engine_peers.base import Answers, Prompt, Task, serve
from bench.engine_peers.docmill_engine import rows_of, without_duplicates
from bench.engine_sides import Process, Side

_FIRST = Prompt("r0", (5, 6), 3)
_TASK = Task(
    model=Path("model"),
    gguf_dir=Path("gguf"),
    threads=2,
    dtype="bfloat16",
    warm=(Prompt("warm", (1,), 1),),
    workloads={"off": (_FIRST,), "full": (_FIRST, Prompt("r1", (5, 6), 3))},
)


class Noting:
    """An engine that notes what it is asked for and repeats prompts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def forget(self) -> None:
        """Note it."""
        self.calls.append("forget")

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Note who asked."""
        self.calls.append(" ".join(prompt.prompt_id for prompt in prompts))
        return {prompt.prompt_id: list(prompt.ids) for prompt in prompts}

    def close(self) -> None:
        """Note it."""
        self.calls.append("close")


def test_a_task_survives_its_file(tmp_path: Path) -> None:
    """What is read equals what was written."""
    _TASK.write(tmp_path / "task.json")

    assert _TASK == Task.read(tmp_path / "task.json")


def test_each_run_begins_with_cold_caches_and_a_warm_engine() -> None:
    """It forgets, warms up outside the timed part, and answers exactly what was ordered."""
    engine, reports = Noting(), io.StringIO()

    serve(engine, _TASK, io.StringIO("off\nfull\n"), reports)

    assert ["warm", "forget", "warm", "r0", "forget", "warm", "r0 r1", "close"] == engine.calls
    ready, off, full = map(json.loads, reports.getvalue().splitlines())
    assert {"ready": True} == ready
    assert {"r0": [5, 6]} == off["answers"]
    assert {"r0": [5, 6], "r1": [5, 6]} == full["answers"]
    assert full["seconds"] >= 0


def test_exact_duplicates_are_answered_once() -> None:
    """Rows are alike when both their tokens and what is asked of them are."""
    prompts = [
        Prompt("a", (1, 2), 3),
        Prompt("b", (1, 2), 4),
        Prompt("c", (1, 2), 3),
        Prompt("d", (2, 1), 3),
    ]

    rows, first = without_duplicates(rows_of(prompts))

    assert ["a", "b", "d"] == [row.row_id for row in rows]
    assert {"a": "a", "b": "b", "c": "a", "d": "d"} == first


def test_a_process_that_ends_early_is_told_with_its_log(tmp_path: Path) -> None:
    """The bench ends with the engine's own words instead of waiting for them."""
    absent = Side("no_such_engine", "vllm", Path(sys.executable))
    process = Process(absent, tmp_path / "task.json", 1, tmp_path / "log")
    try:
        with pytest.raises(SystemExit, match=r"ended early(.|\n)*invalid choice: 'no_such_engine'"):
            process.wait_until_ready()
    finally:
        process.end()
