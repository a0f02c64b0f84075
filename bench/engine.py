"""docmill's engine against the engines people would use instead: `python -m bench.engine`.

Decides how they are measured: the same model, token ids, output lengths and threads, greedy, end of
text ignored, each engine loaded once in a process of its own and asked for whole workloads in turn
with the others, with cold caches each time. There are two workloads (bench/workload.py): `off` has
no repetition, `full` has repeated documents and shared instructions. docmill answers exact
duplicates once and copies the answer, as its pipeline does; the time that takes is counted, and no
other engine does it. Peers compute in bf16, except OpenVINO (Q4_1, the file that it reads) and
llama.cpp's second side (Q8_0); how near each stays to float32 is measured too, on `off`. A peer
that is not installed is named. May import torch, transformers and the engine.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoTokenizer

from bench import engine_agreement
from bench.engine_peers import docmill_engine, transformers_engine
from bench.engine_peers.base import Answers, Prompt, Task
from bench.engine_sides import GGUF_DIR, Process, Side, Turn, chosen, log_folder
from bench.report import figure, report
from bench.workload import requests

#: What warms every engine up before each run: documents that are in no workload.
_WARM, _WARM_SEED = 2, 1000

#: What each side needed for each run of a workload, in order.
Turns = Mapping[str, Mapping[str, Sequence[Turn]]]
Figures = dict[str, dict[str, Any]]


def prompts_of(tokenizer: Any, size: int, seed: int, *, repetition: bool) -> tuple[Prompt, ...]:
    """Return a workload as token ids."""
    return tuple(
        Prompt(
            request.custom_id,
            tuple(
                tokenizer.apply_chat_template(
                    request.chat(), add_generation_prompt=True, return_dict=False
                )
            ),
            request.max_tokens,
        )
        for request in requests(size, seed=seed, repetition=repetition)
    )


def without_end_of_text(model: Path, into: Path) -> Path:
    """Make a directory with the same model, except that no token ends its text."""
    for file in model.iterdir():
        if file.name not in ("config.json", "generation_config.json") and file.is_file():
            (into / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    (into / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    return into


def take_turns(
    processes: Sequence[Process], workloads: Sequence[str], runs: int
) -> dict[str, dict[str, list[Turn]]]:
    """Run every workload on every side, one after another, `runs` times; slow sides run once."""
    turns: dict[str, dict[str, list[Turn]]] = {workload: {} for workload in workloads}
    for run in range(runs):
        for workload in workloads:
            for process in processes:
                side = process.side
                if side.once and (run or workload != workloads[0]):
                    continue
                turn = process.run(workload)
                turns[workload].setdefault(side.name, []).append(turn)
                speed = len(turn.answers) / turn.seconds
                print(f"run {run + 1}, {workload}: {side.name} {speed:.3f} documents/s", flush=True)
    return turns


def ratios(own: Sequence[float], peers: Sequence[Sequence[float]]) -> list[float]:
    """Return for each run how many times the best peer's seconds are docmill's.

    A peer that ran less often counts with its last run from then on.
    """
    return [
        min(seconds[min(run, len(seconds) - 1)] for seconds in peers) / spent
        for run, spent in enumerate(own)
    ]


def speed_figures(turns: Turns, sides: Sequence[Side]) -> Figures:
    """Return every side's speed on every workload, and what docmill's is compared with."""
    figures = {}
    for workload, by_side in turns.items():
        for name, each in by_side.items():
            speeds = [len(turn.answers) / turn.seconds for turn in each]
            figures[f"{name}_{workload}_docs_per_s"] = figure(speeds, "documents/s")
    kinds = {side.name: side.kind for side in sides}
    for name, workload, wanted in (
        ("docs_per_s_ratio_vs_vllm", "off", {"vllm"}),
        ("docs_per_s_ratio_vs_best_peer_off", "off", set(kinds.values())),
        ("docs_per_s_ratio_vs_best_generate", "off", {"generate"}),
        ("docs_per_s_ratio_vs_best_peer_full", "full", set(kinds.values())),
    ):
        seconds = {
            side: [turn.seconds for turn in each] for side, each in turns.get(workload, {}).items()
        }
        own = seconds.pop("docmill", [])
        peers = [each for side, each in seconds.items() if kinds[side] in wanted]
        if own and peers:
            figures[name] = figure(ratios(own, peers), "ratio")
    return figures


def cost_figures(processes: Sequence[Process]) -> Figures:
    """Return what every side held in memory, and what it cost the others while it waited."""
    figures = {}
    for process in processes:
        name = process.side.name
        figures[f"{name}_peak_rss"] = figure([process.peak_rss_gib()], "GiB")
        figures[f"{name}_idle_cpu"] = figure([process.idle_cpu_s], "s")
    return figures


def agreement_figures(task: Task, answers: Mapping[str, Answers], special: set[int]) -> Figures:
    """Compare every side's answers with greedy float32, docmill's own float32 included."""
    judged = task.workloads["off"]
    model = transformers_engine.load_model(task, "float32")
    with torch.inference_mode():
        reference = transformers_engine.generate(model, judged, 1)
    exact = docmill_engine.load(task, "float32")
    everyone = {**answers, "docmill_float32": exact.answer(judged)}
    exact.close()
    agreement = engine_agreement.next_token_agreement(model, judged, everyone, special)
    figures: Figures = {}
    for name, each in everyone.items():
        common = engine_agreement.before_first_difference(each, reference)
        same = engine_agreement.identical_ratio(each, reference)
        figures[f"{name}_next_token_agreement"] = figure([agreement[name]], "share of tokens")
        figures[f"{name}_before_first_difference"] = figure([common], "share of tokens")
        figures[f"{name}_identical_ratio"] = figure([same], "share of documents")
    figures["fp32_identical_ratio"] = figures.pop("docmill_float32_identical_ratio")
    return figures


def measure(options: argparse.Namespace, model: Path, task_path: Path) -> Figures:
    """Start every side, let them take turns, and compare what they said."""
    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    workloads = ["off", "full"] if options.repetition == "both" else [options.repetition]
    size, seed = options.size, options.seed
    task = Task(
        model=model,
        gguf_dir=GGUF_DIR,
        threads=options.threads,
        dtype=options.dtype,
        warm=prompts_of(tokenizer, _WARM, _WARM_SEED, repetition=False),
        workloads={
            name: prompts_of(tokenizer, size, seed, repetition=name == "full") for name in workloads
        },
    )
    task.write(task_path)
    peers = options.peers.split(",") if options.peers is not None else None
    sides = chosen(peers)
    for line in filter(None, [side.missing() for side in sides]):
        print(f"MISSING {line}", flush=True)
    logs = log_folder()
    print(f"logs: {logs}; docmill answers exact duplicates once, no other engine does", flush=True)
    with ExitStack() as stack:
        processes = []
        for side in sides:
            if side.missing() is None:
                process = Process(side, task_path, options.threads, logs / f"{side.name}.log")
                stack.callback(process.end)
                process.wait_until_ready()
                processes.append(process)
                print(f"loaded {side.name}", flush=True)
        turns = take_turns(processes, workloads, options.runs)
        figures = speed_figures(turns, sides) | cost_figures(processes)
    if "off" in turns:
        answers = {name: each[-1].answers for name, each in turns["off"].items()}
        figures |= agreement_figures(task, answers, set(tokenizer.all_special_ids))
    return figures


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="SmolLM2's directory")
    parser.add_argument("--dtype", default="bfloat16", help="of docmill, vLLM and transformers")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--size", type=int, default=32, help="documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--peers", help="vllm,openvino,llama_cpp,generate,generate_batch; docmill: none of them"
    )
    parser.add_argument("--repetition", choices=("off", "full", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="one run of 8 documents")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if not (options.model / "config.json").is_file():
        parser.error(f"{options.model} is no model directory; `make model` makes SmolLM2's")
    if options.quick:
        options.size, options.runs = 8, 1
    torch.set_num_threads(options.threads)
    with TemporaryDirectory() as folder:
        model = without_end_of_text(options.model, Path(folder))
        figures = measure(options, model, Path(folder) / "task.json")
    report("engine", figures, options.json)


if __name__ == "__main__":
    main()
