"""How far bf16 answers drift from fp32 ones, and from themselves: `python -m bench.divergence`.

Decides what is compared. In fp32 a greedy answer is the same in every batch; in bf16 sums that are
added up in another order may round to another score, and where two tokens are nearly as likely the
answer goes on with the other one. Three runs of the same rows are compared: fp32, each row alone in
bf16, and all rows in one bf16 batch. By default the rows are those of the exactness tests, over
each tiny random model, whose scores lie closer together than a trained model's; with `--model` they
are documents of the workload. May import torch, transformers, the engine and tests.support.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from bench.report import figure, report
from bench.workload import requests
from engine.base import Row, RowDone, Sampling
from engine.torch_engine import TorchEngine
from tests.support.exactness import make_rows
from tests.support.tiny_models import ARCHITECTURES

Answers = Mapping[str, Sequence[int]]


def identical_rows(expected: Answers, answers: Answers) -> float:
    """Return the share of rows whose whole answer is the expected one."""
    return sum(tuple(answers[key]) == tuple(each) for key, each in expected.items()) / len(expected)


def agreeing_positions(expected: Answers, answers: Answers) -> float:
    """Return the share of expected tokens that come before their row's first difference."""
    agreeing = sum(_num_agreeing(each, answers[key]) for key, each in expected.items())
    return agreeing / sum(map(len, expected.values()))


def _num_agreeing(expected: Sequence[int], tokens: Sequence[int]) -> int:
    pairs = zip(expected, tokens, strict=False)  # an answer may end early, or late
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def answer(engine: TorchEngine, rows: Sequence[Row], at_once: int) -> Answers:
    """Answer rows, `at_once` of them at a time."""
    answers = {}
    for start in range(0, len(rows), at_once):
        for event in engine.run(rows[start : start + at_once]):
            assert isinstance(event, RowDone), event
            answers[event.row_id] = event.token_ids
    return answers


def divergence(
    path: Path, rows: Sequence[Row], device: str = "auto", at_once: int = 32
) -> dict[str, float]:
    """Return how much of the answers agrees, for each pair of runs that is compared."""
    exact = TorchEngine.load(path, dtype="float32", device=device)
    fp32 = answer(exact, rows, at_once)
    exact.close()
    half = TorchEngine.load(path, dtype="bfloat16", device=device)
    alone, batched = answer(half, rows, 1), answer(half, rows, at_once)
    half.close()
    pairs = {
        "bf16_alone_vs_fp32": (fp32, alone),
        "bf16_batched_vs_fp32": (fp32, batched),
        "bf16_batched_vs_alone": (alone, batched),
    }
    return {
        f"{name}_{what}_ratio": measure(*pair)
        for name, pair in pairs.items()
        for what, measure in (("rows", identical_rows), ("positions", agreeing_positions))
    }


def documents(model: Path, size: int) -> list[Row]:
    """Return documents of the workload as rows."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    rows = []
    for request in requests(size, repetition=False):
        ids = tokenizer.apply_chat_template(
            request.chat(), add_generation_prompt=True, return_dict=False
        )
        prompt = np.array(ids, dtype=np.uint32)
        rows.append(Row(request.custom_id, prompt, Sampling(request.max_tokens)))
    return rows


def measured(options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """Measure one model after another."""
    if options.model is not None:
        rows = documents(options.model, options.size)
        yield divergence(options.model, rows, options.device)
        return
    for name, build in ARCHITECTURES.items():
        shares = divergence(build(), make_rows(max_tokens=24), options.device)
        listed = "  ".join(
            f"{key.removesuffix('_ratio')} {each:.2f}" for key, each in shares.items()
        )
        print(f"{name}: {listed}", flush=True)
        yield shares


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.divergence", description=__doc__)
    parser.add_argument("--model", type=Path, help="a model directory; absent: all tiny ones")
    parser.add_argument("--size", type=int, default=32, help="documents, with --model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="8 documents")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    options.size = 8 if options.quick else options.size
    torch.set_num_threads(options.threads)
    each = list(measured(options))
    figures = {
        name: figure([shares[name] for shares in each], "share, over models") for name in each[0]
    }
    report("divergence", figures, options.json)


if __name__ == "__main__":
    main()
