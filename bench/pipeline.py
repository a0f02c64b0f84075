"""The whole pipeline against the engine alone, and without a model: `python -m bench.pipeline`.

Two measurements. *over engine*: the same fresh documents answered by the torch engine in this
process, and by the service (client, Redis, preprocessing worker, engine worker), in turn; what the
pipeline costs is what is missing from 1.0. *fake*: 8 KB documents through the same service with an
engine that costs nothing, which shows how fast everything around the model is. Answers are not
cached between runs. May import docmill, workers, preprocess and engine.
"""

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import figure, report
from bench.workload import Request, requests
from docmill import Client, Document
from docmill.cli.service_process import ServiceProcess
from docmill.wire import Header, Message, Spec
from engine.base import Row, RowDone, Sampling
from engine.options import Limits
from engine.torch_engine import TorchEngine
from preprocess.base import Ready, Submission, Verdict
from workers import models
from workers import settings as configuration
from workers.preparation import preprocessor_for
from workers.settings import Settings

FAKE_DOCUMENT_BYTES = 8 * 1024
START_LIMIT_S = 120.0


@contextmanager
def running_service(directory: Path, **settings: Any) -> Iterator[str]:
    """Run the service until the block ends; yields the URL of its Redis once it is ready."""
    events: dict[str, dict[str, Any]] = {}
    is_up = threading.Event()

    def on_event(event: dict[str, Any]) -> None:
        events[event["event"]] = event
        if event["event"] in ("ready", "fatal", "ended"):
            is_up.set()

    with (directory / "service.log").open("wb") as log:
        service = ServiceProcess(
            settings, on_event=on_event, log=log, redis_directory=directory / "redis"
        )
        try:
            if not is_up.wait(START_LIMIT_S) or "ready" not in events:
                raise SystemExit(f"the service does not start: {events.get('fatal')}")
            yield events["redis_ready"]["url"]
        finally:
            service.stop()


def answer(url: str, documents: list[Document], **options: Any) -> float:
    """Submit documents and read every result; return the seconds from first to last."""
    with Client(url) as client:
        opened = threading.Event()
        jobs: list[Any] = []

        def follow(job: Any) -> None:
            jobs.append(job)
            opened.set()

        start = time.perf_counter()
        sender = threading.Thread(
            target=lambda: client.submit(documents, on_open=follow, **options)
        )
        sender.start()
        opened.wait()
        num_ok = sum(result.ok for result in jobs[0].results(timeout=600))
        seconds = time.perf_counter() - start
        sender.join()
    if num_ok != len(documents):
        raise SystemExit(f"only {num_ok} of {len(documents)} documents were answered")
    return seconds


def document_of(request: Request) -> Document:
    """Return the request as the client takes it."""
    messages = [{"role": role, "content": content} for role, content in request.template()]
    options = {"messages": messages, "max_tokens": request.max_tokens}
    return Document(request.custom_id, request.document, options=options)


def rows_of(settings: Settings, workload: list[Request]) -> list[Row]:
    """Return the rows that the pipeline makes of the workload, prepared by its own code."""
    files = models.for_settings(settings)
    verdicts = preprocessor_for(settings, files).prepare(
        [_submission(request) for request in workload], 0.0
    )
    return [_row(request, each) for request, each in zip(workload, verdicts, strict=True)]


def _submission(request: Request) -> Submission:
    turns = [Message(role=role, content=content) for role, content in request.template()]
    spec = Spec(messages=tuple(turns), max_tokens=request.max_tokens)
    header = Header(
        request_id=request.custom_id,
        job_id="bench",
        custom_id=request.custom_id,
        spec=spec.digest(),
        submitted_at=0.0,
    )
    return Submission(header, spec, request.document.encode())


def _row(request: Request, verdict: Verdict) -> Row:
    assert isinstance(verdict, Ready), verdict
    prompt = np.frombuffer(verdict.prepared.tokens, dtype="<u4")
    return Row(request.custom_id, prompt, Sampling(request.max_tokens))


def engine_alone(engine: TorchEngine, rows: list[Row]) -> float:
    """Answer the rows with the engine in this process; return the seconds."""
    start = time.perf_counter()
    assert all(isinstance(event, RowDone) for event in engine.run(rows))
    return time.perf_counter() - start


def over_engine(directory: Path, settings: Settings, size: int, runs: int) -> dict[str, Any]:
    """Measure the pipeline with a real model against its engine."""
    files = models.for_settings(settings)
    assert files.path is not None
    workload = list(requests(size, repetition=False))
    documents = [document_of(request) for request in workload]
    rows = rows_of(settings, workload)
    limits = Limits(settings.max_rows, settings.max_batch_tokens)
    engine = TorchEngine.load(files.path, dtype=settings.dtype, limits=limits)
    alone, whole = [], []
    options = {"model": settings.model, "dtype": settings.dtype, "result_cache_ttl_s": 0}
    with running_service(directory, **options) as url:
        engine_alone(engine, rows[:4])
        answer(url, documents[:4])
        for run in range(runs):
            alone.append(engine_alone(engine, rows))
            whole.append(answer(url, documents))
            print(f"run {run + 1}: engine {alone[-1]:.1f} s, pipeline {whole[-1]:.1f} s")
    engine.close()
    return {
        "engine_docs_per_s": figure([size / each for each in alone], "documents/s"),
        "pipeline_docs_per_s": figure([size / each for each in whole], "documents/s"),
        "pipeline_over_engine_ratio": figure(
            [a / w for a, w in zip(alone, whole, strict=True)], "ratio"
        ),
    }


def fake(directory: Path, size: int, runs: int) -> dict[str, Any]:
    """Measure the pipeline without a model."""
    text = "".join(request.document for request in requests(64, repetition=False))
    text = text.encode("ascii", "replace").decode()
    speeds = []
    with running_service(directory, engine="fake", result_cache_ttl_s=0) as url:
        for run in range(runs + 1):
            documents = [
                Document(f"d{index}", f"{run}/{index}\n{text}"[:FAKE_DOCUMENT_BYTES])
                for index in range(size)
            ]
            seconds = answer(url, documents, prompt="Summarize:", max_tokens=32)
            if run:  # the first warms up
                speeds.append(size / seconds)
            print(f"run {run}: {size / seconds:.0f} documents/s")
    return {"fake_engine_docs_per_s": figure(speeds, "documents/s")}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--size", type=int, default=32, help="documents for the real model")
    parser.add_argument("--fake-size", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--only", choices=("over-engine", "fake"))
    parser.add_argument("--quick", action="store_true", help="fewer documents and runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size, fake_size, runs = options.size, options.fake_size, options.runs
    if options.quick:
        size, fake_size, runs = 12, 5_000, 2
    figures: dict[str, Any] = {}
    directory = Path("build/bench")
    directory.mkdir(parents=True, exist_ok=True)
    if options.only != "over-engine":
        figures |= fake(directory, fake_size, runs)
    if options.only != "fake":
        settings = configuration.load(dtype=options.dtype)
        figures |= over_engine(directory, settings, size, runs)
    report("pipeline", figures, options.json)


if __name__ == "__main__":
    main()
