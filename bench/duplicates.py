"""What sharing answers saves, and that nothing runs twice: a part of bench.preprocess.

The whole service with the fake engine, a second preprocessing worker and a second engine worker
beside it. 2,000 documents, of which 40 % repeat an earlier one, are submitted by two clients at
once, half of them to a job each, in step: chunk by chunk, and a chunk is what a preprocessing
worker reads at once. Half of the repeats lie at the same place of the two jobs, so that two workers
have the copies at the same time; the others repeat any earlier document. Every fourth repeat has
other line ends. Answers are stored, as by default. May import docmill, workers and the other files
of the bench.
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.pipeline import START_LIMIT_S, running_service
from bench.preparation import MAX_TOKENS, PROMPT, Figures
from bench.report import ROOT, figure
from bench.workload import requests
from docmill import Client, Document
from docmill.results import Result
from docmill.submission import CHUNK_DOCS
from workers import settings as configuration
from workers.readiness import Readiness

_SIZE, _REPEATED_SHARE = 2_000, 0.4
_SETTINGS = {"engine": "fake", "log_level": "warning"}
_SECOND_WORKERS = ("workers.preprocess_worker", "workers.engine_worker")

Piles = tuple[list[Document], list[Document]]


def measure(runs: int) -> Figures:
    """Measure a workload with duplicates, a different one each run."""
    saved, twice = [], []
    with serving_twice() as url:
        for run in range(runs):
            workload, num_distinct = piles(run)
            results = submit_at_once(url, workload)
            by_how = Counter(result.shared for result in results)
            saved.append(_saved(results))
            twice.append(float(by_how["run"] - num_distinct))
            how = ", ".join(f"{count:,} {name}" for name, count in by_how.most_common())
            print(f"run {run + 1}: {num_distinct:,} distinct: {how}", flush=True)
    return {
        "tokens_saved_ratio_at_40pct_duplicates": figure(saved, "share of prompt tokens"),
        "duplicates_executed_twice": figure(twice, "documents"),
    }


@contextmanager
def serving_twice() -> Iterator[str]:
    """Run a service that remembers nothing, and a second worker of each kind; yields its URL."""
    with (
        TemporaryDirectory(prefix="dm-bench-") as directory,
        running_service(Path(directory), **_SETTINGS) as url,
        _second_workers(url),
    ):
        yield url


@contextmanager
def _second_workers(url: str) -> Iterator[None]:
    settings = configuration.load(redis_url=url, **_SETTINGS)
    environment = configuration.child_environment(settings, {"RAYON_NUM_THREADS": "1"})
    workers = [
        subprocess.Popen([sys.executable, "-m", module], cwd=ROOT, env=environment)
        for module in _SECOND_WORKERS
    ]
    try:
        _await_ready(Readiness(settings), {worker.pid for worker in workers})
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def _await_ready(readiness: Readiness, pids: set[int]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not pids <= readiness.ready_pids():
        if time.monotonic() > deadline:
            raise SystemExit("the second workers do not start")
        time.sleep(0.1)


def piles(run: int) -> tuple[Piles, int]:
    """Return the documents of both jobs, and how many are distinct; no run repeats another's."""
    choose = random.Random(run)
    num_repeats = round(_SIZE * _REPEATED_SHARE)
    num_distinct = _SIZE - num_repeats
    # one more, for a repeat that comes before there is anything to repeat
    wanted = requests(num_distinct + 1, repetition=False)
    fresh = (f"Run {run}. {each.document}" for each in wanted)
    rows = ["twins"] * (num_repeats // 2) + ["apart"] * (_SIZE // 2 - num_repeats // 2)
    choose.shuffle(rows)
    num_apart = 2 * rows.count("apart")
    is_repeat = [at < num_repeats // 2 for at in range(num_apart)]
    choose.shuffle(is_repeat)
    texts: list[str] = []
    jobs: Piles = ([], [])
    for kind in rows:
        for number, job in enumerate(jobs):
            is_twin = kind == "twins" and number == 1
            if is_twin or (kind == "apart" and is_repeat.pop() and texts):
                text = _respelled(choose, texts[-1] if is_twin else choose.choice(texts))
            else:
                text = next(fresh)
                texts.append(text)
            job.append(Document(f"d{len(job)}", text))
    return jobs, len(texts)


def _respelled(choose: random.Random, text: str) -> str:
    return text.replace("\n", "\r\n") if choose.random() < 0.25 else text


def submit_at_once(url: str, workload: Piles) -> list[Result]:
    """Submit each job by a client of its own, in step; return all results."""
    meeting = threading.Barrier(len(workload))
    results: list[Result] = []

    def submit(documents: list[Document]) -> None:
        with Client(url) as client:
            client.ping()
            job = client.submit(_in_step(documents, meeting), prompt=PROMPT, max_tokens=MAX_TOKENS)
            results.extend(job.results(timeout=600))

    threads = [threading.Thread(target=submit, args=(documents,)) for documents in workload]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if sum(result.ok for result in results) != _SIZE:
        raise SystemExit(f"not all of {_SIZE:,} documents were answered")
    return results


def _in_step(documents: list[Document], meeting: threading.Barrier) -> Iterator[Document]:
    """Yield the documents, each chunk of them when the other client has come as far."""
    for at, document in enumerate(documents):
        if at % CHUNK_DOCS == 0:
            meeting.wait(START_LIMIT_S)
        yield document


def _saved(results: list[Result]) -> float:
    shared = sum(each.usage.prompt_tokens for each in results if each.shared != "run")
    return shared / sum(each.usage.prompt_tokens for each in results)
