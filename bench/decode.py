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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoTokenizer

from bench import decode_limits, decode_passes, decode_plot
from bench.decode_counts import Shape
from bench.decode_limits import Machine
from bench.decode_start import start_to_first_document_s
from bench.decode_table import Line, as_record, as_text, line_of, percentile
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


def prefill_figures(engine: TorchEngine, shape: Shape, machine: Machine, repeats: int) -> Figures:
    """Measure prefill of long documents, of each length and of all together."""
    ratios: dict[str, list[float]] = {}
    for _ in range(repeats):
        flops = seconds = 0.0
        for length in _PREFILL_LENGTHS:
            rows = decode_passes.random_rows(
                [length] * (_PREFILL_TOKENS // length), 1, shape.vocab_size
            )
            ran = decode_passes.run(engine, rows)
            work = len(rows) * shape.prefill_flops(length)
            ratio = work / ran.seconds / machine.flops_per_s
            ratios.setdefault(f"prefill_roofline_ratio_{length}_tokens", []).append(ratio)
            speed = len(rows) * length / ran.seconds
            ratios.setdefault(f"prefill_{length}_tokens_per_s", []).append(speed)
            flops, seconds = flops + work, seconds + ran.seconds
        total = flops / seconds / machine.flops_per_s
        ratios.setdefault("prefill_roofline_ratio", []).append(total)
    units = {name: "tokens/s" if name.endswith("_per_s") else "share" for name in ratios}
    return {name: figure(values, units[name]) for name, values in ratios.items()}


def decode_lines(
    engine: TorchEngine, shape: Shape, machine: Machine, steps: int, repeats: int
) -> list[Line]:
    """Measure steps of 1 to 32 rows, in turn; the steps of all repeats count together."""
    times: dict[int, list[float]] = {num_rows: [] for num_rows in _ROWS}
    for _ in range(repeats):
        for num_rows in _ROWS:
            rows = decode_passes.random_rows([_ROW_TOKENS] * num_rows, steps, shape.vocab_size)
            times[num_rows] += decode_passes.run(engine, rows).seen.step_times(num_rows)
    row_len = _ROW_TOKENS + steps / 2
    return [line_of(rows, row_len, spent, shape, machine) for rows, spent in times.items()]


def decode_figures(lines: Sequence[Line]) -> Figures:
    """Return the table's figures, and the two ratios that are judged; the lesser one counts."""
    units = {"per_s": "tokens/s", "ms": "ms", "share": "share"}
    figures = {
        name: figure([value], next(unit for end, unit in units.items() if name.endswith(end)))
        for name, value in as_record(lines).items()
    }
    ratios = {line.num_rows: line.roofline_ratio for line in lines}
    for num_rows, ratio in ratios.items():
        figures[f"decode_roofline_ratio_{num_rows}_rows"] = figure([ratio], "share")
    judged = [ratios[num_rows] for num_rows in _JUDGED_ROWS]
    return figures | {"decode_roofline_ratio": figure(judged, "share")}


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
    """Measure the engine beside the machine, which is measured before and after it."""
    shape = Shape.read(options.model)
    print("measuring the machine", flush=True)
    before = decode_limits.measure(shape, options.repeats)
    engine, plain = _load(options, Limits()), _load(options, Limits(max_drafts=0))
    print("loaded; a mixed workload", flush=True)
    rows = _workload(options, repetition=True)
    figures = mixed_figures(engine, plain, rows, options.runs)
    machine = decode_limits.best(before, decode_limits.measure(shape, options.repeats))
    print("prefill", flush=True)
    figures |= prefill_figures(plain, shape, machine, options.runs)
    print("decoding", flush=True)
    lines = decode_lines(plain, shape, machine, options.steps, options.runs)
    print(as_text(lines), flush=True)
    if options.plot:
        decode_plot.write(options.plot, lines, f"Decoding, {_ROW_TOKENS}-token documents")
    return _machine_figures(machine) | figures | decode_figures(lines)


def _machine_figures(machine: Machine) -> Figures:
    limits: Mapping[str, float] = {
        "bf16_gemm_limit": machine.flops_per_s,
        "read_bandwidth": machine.read_bytes_per_s,
    }
    units = {"bf16_gemm_limit": "GFLOP/s", "read_bandwidth": "GB/s"}
    return {name: figure([value / 1e9], units[name]) for name, value in limits.items()}


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
    parser.add_argument("--repeats", type=int, default=10, help="of each measure of the machine")
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
