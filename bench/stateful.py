"""What rows of unequal length gain together in a stateful model: `python -m bench.stateful`.

Tiny random models, DeepSeek-V4 with all three kinds of layer and Qwen3-Next, answer eight prompts
of unequal lengths, in fp32 and on one thread: all rows in one batch, one by one through the same
engine, and one by one through transformers' `generate`. The sides take turns, and every answer must
be the same on all of them, token for token. `stateful_batch_ratio` is tokens per second together
over one by one, prompts included. A tiny model shows what a pass costs besides arithmetic. May
import torch, transformers, the engine and tests.support.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from bench.report import figure, report
from engine.base import Row, RowDone, Sampling
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_deepseek_v4
from tests.support.tiny_models.stateful import qwen3_next

_LENGTHS = (5, 30, 47, 64, 90, 128, 171, 250)
_MAX_TOKENS = 32
_MODELS = {"stateful": tiny_deepseek_v4, "recurrent": qwen3_next}

Answers = dict[str, tuple[int, ...]]
Figures = dict[str, dict[str, Any]]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures: Figures = {}
    rows = unequal_rows(_LENGTHS, _MAX_TOKENS)
    for name, make in _MODELS.items():
        figures |= measure(name, make(), 3 if arguments.quick else arguments.runs, rows)
    report("stateful", figures, arguments.json)


def measure(name: str, path: Path, runs: int, rows: Sequence[Row]) -> Figures:
    """Let one model answer the rows on every side in turn."""
    sides = {"together": together(path), "one_by_one": one_by_one(path), "generate": generate(path)}
    expected = {side: answer(rows) for side, answer in sides.items()}  # also warms up
    if len({tuple(sorted(answers.items())) for answers in expected.values()}) != 1:
        raise SystemExit(f"{name}: answers differ between {', '.join(sides)}")
    num_tokens = sum(map(len, expected["together"].values()))
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(runs):
        for side, answer in sides.items():
            started = time.perf_counter()
            answer(rows)
            rates[side].append(num_tokens / (time.perf_counter() - started))
    ratios = {
        f"{name}_batch_ratio": "one_by_one",
        f"{name}_batch_ratio_vs_generate": "generate",
    }
    return {
        ratio: figure(
            [a / b for a, b in zip(rates["together"], rates[other], strict=True)], "tokens/s ratio"
        )
        for ratio, other in ratios.items()
    } | {f"{name}_{side}_tokens_per_s": figure(rates[side], "tokens/s") for side in sides}


def unequal_rows(lengths: Sequence[int], max_tokens: int) -> list[Row]:
    """Return random prompts of these lengths."""
    random = np.random.default_rng(0)
    return [
        Row(f"r{length}", random.integers(4, 320, length).astype(np.uint32), Sampling(max_tokens))
        for length in lengths
    ]


def together(path: Path) -> Callable[[Sequence[Row]], Answers]:
    """Return the side that answers all rows in one batch."""
    engine = TorchEngine.load(path, dtype="float32")

    def answer(rows: Sequence[Row]) -> Answers:
        return {
            event.row_id: event.token_ids
            for event in engine.run(rows)
            if isinstance(event, RowDone)
        }

    return answer


def one_by_one(path: Path) -> Callable[[Sequence[Row]], Answers]:
    """Return the side that answers each row in a batch of its own."""
    answer = together(path)
    return lambda rows: {key: ids for row in rows for key, ids in answer([row]).items()}


def generate(path: Path) -> Callable[[Sequence[Row]], Answers]:
    """Return the side that lets transformers answer each row."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def answer(rows: Sequence[Row]) -> Answers:
        answers = {}
        for row in rows:
            ids = torch.from_numpy(row.prompt.astype(np.int64))[None]
            out = model.generate(ids, do_sample=False, max_new_tokens=row.sampling.max_tokens)
            answers[row.row_id] = tuple(out[0, len(row.prompt) :].tolist())
        return answers

    return answer


if __name__ == "__main__":
    main()
