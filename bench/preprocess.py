"""What preprocessing costs, what it saves and what it keeps: `python -m bench.preprocess`.

Decides the figures and the sizes of a full and of a quick run. Rates are per second of processor
time on one core, with SmolLM2's tokenizer and the client's default options unless said otherwise.
Parts: speed (here), steps (bench.preprocess_steps), truncation (bench.cuts), duplicates
(bench.duplicates, with the service and a second worker of each kind), rules (bench.rules_quality).
May import docmill, preprocess, workers and the other files of the bench.
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from bench import cuts, duplicates, preprocess_steps
from bench.preparation import Figures, Kit, num_mb, one_core, timed
from bench.report import figure, report
from bench.texts import attacks, cjk, prose
from bench.workload import requests
from preprocess import checks, rules
from preprocess.base import Ready, Verdict

#: What a document of the workload may have in `pipeline_mb_per_s`, so that the long part is cut.
_MAX_DOCUMENT_TOKENS = 1_024
_SEEN_CHARS = 8 * 1024
PARTS = ("speed", "steps", "truncation", "duplicates")


def filtered(kit: Kit, documents: Sequence[str]) -> Callable[[], None]:
    """Return the work of the filter layer alone on the documents: their bytes in, findings out."""
    limit = kit.served.max_document_bytes
    encoded = [document.encode() for document in documents]

    def work() -> None:
        for document in encoded:
            text = checks.read(document, "utf-8", limit)
            assert isinstance(text, checks.Text), text
            rules.inspect(text.text, {}, kit.tokenizer.spells_control_token)

    return work


def filter_figures(kit: Kit, size: int, runs: int) -> Figures:
    """Measure the filter layer on prose, and on CJK and dense attacks of the same lengths."""
    workload = [request.document for request in requests(size, repetition=False)]
    lengths = [len(document) for document in workload]
    kinds = {
        "filter_mb_per_s": workload,
        "filter_cjk_mb_per_s": cjk([max(1, length // 3) for length in lengths]),
        "filter_attack_mb_per_s": attacks(lengths),
        "filter_attack_64kb_mb_per_s": attacks([64 * 1024] * (size // 50)),
    }
    works = {name: filtered(kit, documents) for name, documents in kinds.items()}
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for run in range(runs + 1):
        for name, work in works.items():
            seconds, _ = timed(work)
            if run:  # the first warms up
                rates[name].append(num_mb(kinds[name]) / seconds)
    return {name: figure(each, "MB/s a core") for name, each in rates.items()}


def pipeline_figures(size: int, runs: int) -> Figures:
    """Measure everything together on unique documents, of which the long part has to be cut."""
    kit = Kit.load(max_document_tokens=_MAX_DOCUMENT_TOKENS)
    workload = requests(size * (runs + 1), repetition=False)
    preprocessor = kit.preprocessor()
    rates: list[float] = []
    cut: list[float] = []
    for run in range(runs + 1):
        documents = [request.document for request in islice(workload, size)]
        seconds, verdicts = timed(kit.prepare, preprocessor, kit.submissions(documents))
        assert all(isinstance(each, Ready) for each in verdicts)
        if run:  # the first warms up
            rates.append(num_mb(documents) / seconds)
            cut.append(sum(map(_is_cut, verdicts)) / size)
    return {
        "pipeline_mb_per_s": figure(rates, "MB/s a core"),
        "pipeline_cut_docs_ratio": figure(cut, "share of documents"),
    }


def _is_cut(verdict: Verdict) -> bool:
    return verdict.report is not None and verdict.report.truncation is not None


def seen_figures(kit: Kit, size: int, runs: int) -> Figures:
    """Measure documents that came by before."""
    submissions = kit.submissions(prose([_SEEN_CHARS] * size))
    preprocessor = kit.preprocessor()
    kit.prepare(preprocessor, submissions)
    preprocessor.take_num_seen()
    rates = []
    for _ in range(runs):
        seconds, _ = timed(kit.prepare, preprocessor, submissions)
        rates.append(size / seconds)
        assert preprocessor.take_num_seen() == size
    return {"seen_repeat_docs_per_s": figure(rates, "documents/s a core")}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.preprocess", description=__doc__)
    parser.add_argument("--size", type=int, default=1_500, help="documents for the rates")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="fewer documents and runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size, runs = (300, 2) if options.quick else (options.size, options.runs)
    parts = (options.only,) if options.only else PARTS
    figures: Figures = {}
    kit = Kit.load()
    with one_core():
        if "speed" in parts:
            figures |= filter_figures(kit, size, runs)
            figures |= pipeline_figures(size, runs)
            figures |= seen_figures(kit, size // 2, runs)
        if "steps" in parts:
            figures |= preprocess_steps.measure(kit, runs, is_quick=options.quick)
        if "truncation" in parts:
            figures |= cuts.measure(kit)
    if "duplicates" in parts:
        figures |= duplicates.measure(1 if options.quick else 3)
    report("preprocess", figures, options.json)


if __name__ == "__main__":
    main()
