"""What the client costs: memory, documents a second, import time. `python -m bench.client`.

Each run submits 8 KB documents with ids of their own from a generator, in a process of its own, to
a fresh Redis on this machine (append-only file, synced every second) that nobody reads from. The
peak is the process' resident memory (VmHWM, Linux). Imports of the client and of nothing are timed
in turn. May import docmill and workers.redis_server.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.report import ROOT, figure, report

DOCUMENT_BYTES = 8 * 1024
DOCUMENTS, QUICK_DOCUMENTS = 100_000, 20_000
RUNS, QUICK_RUNS = 5, 3
IMPORTS = 15


def documents(count: int) -> Iterator[tuple[str, str]]:
    """Yield documents that are made when they are asked for, none like another."""
    filler = "steady " * (DOCUMENT_BYTES // 7 + 1)
    for number in range(count):
        yield f"row-{number}", f"{number:08} {filler}"[:DOCUMENT_BYTES]


def submit(url: str, count: int) -> None:
    """Submit so many documents, and print what it took as JSON; runs in a process of its own."""
    from docmill import Client

    with Client(url) as client:
        client.ping()
        started = time.perf_counter()
        job = client.submit(documents(count), prompt="Sum up.")
        elapsed_s = time.perf_counter() - started
        if job.status().submitted != count:
            raise SystemExit("not every document was accepted")
    print(json.dumps({"docs_per_s": count / elapsed_s, "peak_mb": _peak_mb()}))


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


def measure_submission(count: int) -> dict[str, float]:
    """Submit to a fresh Redis in a fresh process, and return what that took."""
    from workers.redis_server import start_embedded

    with tempfile.TemporaryDirectory(prefix="dm-bench-") as directory:
        server = start_embedded(Path(directory))
        try:
            shown = subprocess.run(
                [
                    sys.executable,
                    *("-m", "bench.client"),
                    *("--submit-to", server.url),
                    *("--documents", str(count)),
                ],
                cwd=ROOT,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        finally:
            server.stop()
    measured: dict[str, float] = json.loads(shown)
    return measured


def import_s(statement: str) -> float:
    """Return how long a fresh interpreter takes to run a statement and end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], cwd=ROOT, check=True)
    return time.perf_counter() - started


def measure(count: int, runs: int) -> dict[str, dict[str, Any]]:
    """Run everything and return the figures."""
    submissions = [measure_submission(count) for _ in range(runs)]
    overheads = [import_s("from docmill import Client") - import_s("pass") for _ in range(IMPORTS)]
    return {
        "client_peak_mb": figure([each["peak_mb"] for each in submissions], "MB"),
        "client_enqueue_docs_per_s": figure(
            [each["docs_per_s"] for each in submissions], "documents/s"
        ),
        "client_import_ms": figure([each * 1000 for each in overheads], "ms over bare Python"),
    }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.client")
    parser.add_argument("--quick", action="store_true", help="fewer documents and runs")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--documents", type=int, help="documents in one run")
    parser.add_argument("--submit-to", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    count = arguments.documents or (QUICK_DOCUMENTS if arguments.quick else DOCUMENTS)
    if arguments.submit_to:
        submit(arguments.submit_to, count)
        return
    report("client", measure(count, QUICK_RUNS if arguments.quick else RUNS), arguments.json)


if __name__ == "__main__":
    main()
