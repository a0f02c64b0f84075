"""The torch engine against transformers `generate`: `python -m bench.engine --model DIR`.

Decides how both are measured: the same model, dtype, threads and token ids, in one process, in
turn. transformers answers one document at a time, in left-padded batches of 8 as they come, and in
such batches sorted by length; what counts is the best of the three. End of text is ignored, so
that both generate exactly as many tokens. May import torch, transformers and the engine.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from bench.report import figure, report
from bench.workload import requests
from engine.base import Row, RowDone, Sampling
from engine.options import Limits
from engine.torch_engine import TorchEngine

BATCH = 8

Answers = dict[str, list[int]]


def rows_of(model: Path, size: int, seed: int) -> list[Row]:
    """Return the workload as rows of token ids."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    rows = []
    for request in requests(size, seed=seed):
        ids = tokenizer.apply_chat_template(
            request.chat(), add_generation_prompt=True, return_dict=False
        )
        prompt = np.array(ids, dtype=np.uint32)
        rows.append(Row(request.custom_id, prompt, Sampling(request.max_tokens)))
    return rows


def docmill(engine: TorchEngine, rows: Sequence[Row]) -> Answers:
    """Answer the rows with the engine."""
    answers = {}
    for event in engine.run(rows):
        assert isinstance(event, RowDone), event
        answers[event.row_id] = list(event.token_ids)
    return answers


def generate(model: Any, batches: Sequence[Sequence[Row]]) -> Answers:
    """Answer the rows with transformers, batch by batch, padded on the left."""
    answers = {}
    for batch in batches:
        longest = max(len(row.prompt) for row in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(batch):
            ids[index, longest - len(row.prompt) :] = torch.from_numpy(row.prompt.astype(np.int64))
            mask[index, longest - len(row.prompt) :] = 1
        limit = max(row.sampling.max_tokens for row in batch)
        out = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=limit
        )
        for row, tokens in zip(batch, out[:, longest:].tolist(), strict=True):
            answers[row.row_id] = tokens[: row.sampling.max_tokens]
    return answers


def batches_of(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """Cut rows into batches, in their order."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def without_end_of_text(model: Path, into: Path) -> Path:
    """Make a directory with the same model, except that no token ends its text."""
    for file in model.iterdir():
        if file.name not in ("config.json", "generation_config.json") and file.is_file():
            (into / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    (into / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    return into


def load_peer(path: Path, dtype: str) -> Any:
    """Load the model the way transformers' users do."""
    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()
    model.generation_config.pad_token_id = 0
    return model


def load_engine(path: Path, dtype: str) -> TorchEngine:
    """Load the engine and warm it up."""
    engine = TorchEngine.load(path, dtype=dtype, limits=Limits(max_rows=32))
    engine.warm([])
    return engine


def timed(work: Callable[[], Answers]) -> tuple[float, Answers]:
    """Return the seconds that work took and what it answered."""
    gc.collect()
    start = time.perf_counter()
    answers = work()
    return time.perf_counter() - start, answers


def compare(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure all sides in turn, `--runs` times."""
    rows = rows_of(options.model, options.size, options.seed)
    by_length = sorted(rows, key=lambda row: len(row.prompt))
    engine = load_engine(options.model, options.dtype)
    peer = load_peer(options.model, options.dtype)
    sides: dict[str, Callable[[], Answers]] = {
        "docmill": lambda: docmill(engine, rows),
        "generate_sorted_8": lambda: generate(peer, batches_of(by_length, BATCH)),
        "generate_one_by_one": lambda: generate(peer, batches_of(rows, 1)),
        "generate_as_they_come_8": lambda: generate(peer, batches_of(rows, BATCH)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(options.runs):
        for name, work in sides.items():
            spent, _ = timed(work)
            seconds[name].append(spent)
            print(f"run {run + 1}: {name} {len(rows) / spent:.3f} documents/s", flush=True)
    best = [min(each) for each in zip(*list(seconds.values())[1:], strict=True)]
    figures = {
        f"{name}_docs_per_s": figure([len(rows) / each for each in spent], "documents/s")
        for name, spent in seconds.items()
    }
    ratios = [peer_s / own_s for peer_s, own_s in zip(best, seconds["docmill"], strict=True)]
    return figures | {"docs_per_s_ratio_vs_best_generate": figure(ratios, "ratio")}


def identical(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Compare every document's greedy fp32 answer with its answer one by one."""
    rows = rows_of(options.model, options.identical_size, options.seed)
    own = docmill(load_engine(options.model, "float32"), rows)
    reference = generate(load_peer(options.model, "float32"), batches_of(rows, 1))
    same = sum(own[row.row_id] == reference[row.row_id] for row in rows)
    return {"fp32_identical_ratio": figure([same / len(rows)], "share of documents")}


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a model directory")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--size", type=int, default=32, help="documents")
    parser.add_argument("--identical-size", type=int, default=32, help="documents compared in fp32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one run of 12 documents")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.quick:
        options.size, options.identical_size, options.runs = 12, 12, 1
    torch.set_num_threads(options.threads)
    with TemporaryDirectory() as folder, torch.inference_mode():
        options.model = without_end_of_text(options.model, Path(folder))
        figures = compare(options) | identical(options)
    report("engine", figures, options.json)


if __name__ == "__main__":
    main()
