"""docmill's engine against what the machine can do: `python -m bench.decode --model DIR`.

Decides what is measured of the torch engine alone: prefill and decoding beside the limits measured
in the same run (bench/decode_limits.py), what the engine costs around the model, what it computes
for nothing, how refilling trades throughput for even gaps between tokens, and how long a first
document waits for the start. Drafts are off where steps are counted. May import torch and the
engine.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoTokenizer

from bench import decode_limits, decode_passes, decode_plot
from bench.decode_counts import Shape
from bench.decode_limits import Machine
from bench.decode_start import start_to_first_document_s
from bench.decode_table import Line, as_record, as_text, line_of, middle, percentile
from bench.engine import prompts_of, without_end_of_text
from bench.engine_peers.docmill_engine import rows_of
from bench.report import figure, report
from engine.base import Row
from engine.options import Limits
from engine.torch_engine import TorchEngine

_ROWS = (1, 2, 4, 8, 16, 32)
#: Those that `decode_roofline_ratio` speaks of.
_JUDGED_ROWS = (8, 32)
_PREFILL_TOKENS, _PREFILL_LENGTHS = 4096, (512, 1024, 2048)
_ROW_TOKENS = 500
_SHARES = (1.0, 0.5, 0.25, 0.0)
#: Rows at once while shares are compared: few enough that many join.
_REFILLED_ROWS = 8

Figures = dict[str, dict[str, Any]]


def prefill_figures(engine: TorchEngine, shape: Shape, options: argparse.Namespace) -> Figures:
    """Measure prefill of long documents, of each length and of all together."""
    seen: dict[str, list[float]] = {}
    for _ in range(options.runs):
        ran, machine = decode_limits.beside(
            shape, options.repeats, partial(_prefill_each, engine, shape)
        )
        _note_limits(seen, "prefill", machine)
        flops = seconds = 0.0
        for length, num_rows, spent in ran:
            work = num_rows * shape.prefill_flops(length)
            ratio = work / spent / machine.flops_per_s
            seen.setdefault(f"prefill_roofline_ratio_{length}_tokens", []).append(ratio)
            speed = num_rows * length / spent
            seen.setdefault(f"prefill_{length}_tokens_per_s", []).append(speed)
            flops, seconds = flops + work, seconds + spent
        total = flops / seconds / machine.flops_per_s
        seen.setdefault("prefill_roofline_ratio", []).append(total)
    return _with_units(seen)


def _prefill_each(engine: TorchEngine, shape: Shape) -> list[tuple[int, int, float]]:
    """Compute prompts of each length; return the length, how many, and the seconds they took."""
    ran = []
    for length in _PREFILL_LENGTHS:
        lengths = [length] * (_PREFILL_TOKENS // length)
        rows = decode_passes.random_rows(lengths, 1, shape.vocab_size)
        ran.append((length, len(rows), decode_passes.run(engine, rows).seconds))
    return ran


def decode_rounds(
    engine: TorchEngine, shape: Shape, options: argparse.Namespace
) -> tuple[list[list[Line]], Figures]:
    """Measure steps of 1 to 32 rows, in turn, each beside the machine before and after it.

    Returns:
        The lines of each round, and what the machine could do meanwhile.
    """
    rounds, seen = [], dict[str, list[float]]()
    for _ in range(options.runs):
        lines = []
        for num_rows in _ROWS:
            rows = decode_passes.random_rows(
                [_ROW_TOKENS] * num_rows, options.steps, shape.vocab_size
            )
            ran, machine = decode_limits.beside(
                shape, options.repeats, partial(decode_passes.run, engine, rows)
            )
            _note_limits(seen, "decode", machine)
            row_len = _ROW_TOKENS + options.steps / 2
            times = ran.seen.step_times(num_rows)
            lines.append(line_of(num_rows, row_len, times, shape, machine))
        rounds.append(lines)
    return rounds, _with_units(seen)


def decode_figures(rounds: Sequence[Sequence[Line]]) -> Figures:
    """Return the table's figures, and the ratio that is judged: each round's least."""
    seen: dict[str, list[float]] = {}
    for lines in rounds:
        judged = [line.roofline_ratio for line in lines if line.num_rows in _JUDGED_ROWS]
        for name, value in {**as_record(lines), "decode_roofline_ratio": min(judged)}.items():
            seen.setdefault(name, []).append(value)
    return _with_units(seen)


def _note_limits(seen: dict[str, list[float]], beside: str, machine: Machine) -> None:
    """Note what the machine could do."""
    product, read = machine.flops_per_s / 1e9, machine.read_bytes_per_s / 1e9
    seen.setdefault(f"{beside}_bf16_gemm_limit_gflop_per_s", []).append(product)
    seen.setdefault(f"{beside}_read_bandwidth_gb_per_s", []).append(read)


def _with_units(seen: Mapping[str, Sequence[float]]) -> Figures:
    units = {"gflop_per_s": "GFLOP/s", "gb_per_s": "GB/s", "tokens_per_s": "tokens/s", "_ms": "ms"}
    return {
        name: figure(
            values, next((unit for end, unit in units.items() if name.endswith(end)), "share")
        )
        for name, values in seen.items()
    }


def mixed_figures(
    engine: TorchEngine, plain: TorchEngine, rows: Sequence[Row], repeats: int
) -> Figures:
    """Measure a mixed workload: what is spent around the model, and what is computed for nothing.

    Args:
        engine: As it runs by default.
        plain: Without drafts, so that tokens beyond the rows' own are padding.
        rows: Their prompts may begin alike.
        repeats: How often.
    """
    overheads = []
    for _ in range(repeats):
        ran = decode_passes.run(engine, rows)
        overheads.append(1 - ran.seen.forward_s / ran.seconds)
    return {
        "engine_overhead_ratio": figure(overheads, "share of time"),
        "padding_ratio": figure([padding_ratio(plain, rows)], "share of prompt tokens"),
    }


def padding_ratio(engine: TorchEngine, rows: Sequence[Row]) -> float:
    """Return the tokens that prefill computed beyond the prompts' own, as a share of those."""
    ran = decode_passes.run(engine, rows)
    own = sum(len(row.prompt) for row in rows) - sum(each.num_cached_tokens for each in ran.done)
    return (ran.seen.num_ids - ran.num_decoded) / own - 1


def refill_figures(options: argparse.Namespace, rows: Sequence[Row]) -> Figures:
    """Measure a stream of documents by the share of slots that must be free before some join."""
    engines = {
        share: _load(options, Limits(max_rows=_REFILLED_ROWS, refill_share=share))
        for share in _SHARES
    }
    seen: dict[str, list[float]] = {}
    for _ in range(options.runs):
        for share, engine in engines.items():
            ran = decode_passes.run(engine, rows[:_REFILLED_ROWS], joining=rows[_REFILLED_ROWS:])
            tokens = sum(len(row.prompt) for row in rows) + sum(
                each.num_tokens for each in ran.done
            )
            name = f"refill_{share:g}"
            seen.setdefault(f"{name}_tokens_per_s", []).append(tokens / ran.seconds)
            gap = percentile(ran.seen.gaps(), 0.95)
            seen.setdefault(f"{name}_p95_gap_ms", []).append(gap * 1000)
            median = statistics.median(ran.seen.gaps())
            seen.setdefault(f"{name}_median_gap_ms", []).append(median * 1000)
    units = {name: "tokens/s" if name.endswith("_per_s") else "ms" for name in seen}
    return {name: figure(values, units[name]) for name, values in seen.items()}


def start_figures(options: argparse.Namespace) -> Figures:
    """Measure the start: the first, which may find files unread, and those after it."""
    spent = [
        start_to_first_document_s(options.model, options.threads) for _ in range(1 + options.runs)
    ]
    return {
        "first_start_to_first_document_s": figure(spent[:1], "s"),
        "start_to_first_document_s": figure(spent[1:], "s"),
    }


def _load(options: argparse.Namespace, limits: Limits) -> TorchEngine:
    engine = TorchEngine.load(
        options.model, dtype=options.dtype, threads=options.threads, limits=limits
    )
    engine.warm([])
    return engine


def engine_figures(options: argparse.Namespace) -> Figures:
    """Measure the engine beside the machine."""
    shape = Shape.read(options.model)
    engine, plain = _load(options, Limits()), _load(options, Limits(max_drafts=0))
    print("loaded; a mixed workload", flush=True)
    rows = _workload(options, repetition=True)
    figures = mixed_figures(engine, plain, rows, options.runs)
    print("prefill", flush=True)
    figures |= prefill_figures(plain, shape, options)
    print("decoding", flush=True)
    rounds, limits = decode_rounds(plain, shape, options)
    lines = [middle(same) for same in zip(*rounds, strict=True)]
    print(as_text(lines), flush=True)
    if options.plot:
        decode_plot.write(options.plot, lines, f"Decoding, {_ROW_TOKENS}-token documents")
    return figures | limits | decode_figures(rounds)


def _workload(options: argparse.Namespace, *, repetition: bool) -> list[Row]:
    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    return rows_of(prompts_of(tokenizer, options.size, options.seed, repetition=repetition))


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.decode", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a model like Llama")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--size", type=int, default=32, help="documents of the mixed workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=48, help="tokens of each row that decodes")
    parser.add_argument("--repeats", type=int, default=4, help="of each measure of the machine")
    parser.add_argument("--only", choices=("engine", "refill", "start"), help="one part alone")
    parser.add_argument("--refill", action="store_true", help="compare shares for refilling too")
    parser.add_argument("--plot", type=Path, help="write the table as an SVG plot here")
    parser.add_argument("--quick", action="store_true", help="one run of 8 documents")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.quick:
        options.size, options.runs, options.steps, options.repeats = 8, 1, 16, 3
    torch.set_num_threads(options.threads)
    figures: Figures = {}
    if options.only in (None, "start"):
        figures |= start_figures(options)
    with TemporaryDirectory() as folder:
        options.model = without_end_of_text(options.model, Path(folder))
        if options.only in (None, "engine"):
            figures |= engine_figures(options)
        if options.refill or options.only == "refill":
            figures |= refill_figures(options, _workload(options, repetition=False))
    report("decode", figures, options.json)


if __name__ == "__main__":
    main()
