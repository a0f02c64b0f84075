"""What a run says: its seed at first, figures and counts at its end."""

import os
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.storm import Tally
from tests.chaos.watch import quantile


def new_seed() -> str:
    """Return a seed: of one's own choice (`CHAOS_SEED`), else a new one."""
    return os.environ.get("CHAOS_SEED") or secrets.token_hex(4)  # noqa: TID251 - no docmill setting


def shown(tally: Tally, folder: Path) -> Iterator[str]:
    """Yield the lines; the last one counts kills, documents, losses and doubles."""
    verdict = tally.verdict
    yield f"killed: {_counts(tally.kills)}"
    yield f"by themselves, at a command: {_counts(_moments(folder))}"
    yield f"from outside: {_counts(tally.injuries)}"
    yield f"in the logs: {_counts(_events(folder))}"
    yield f"documents given up and let run again: {verdict.num_retried}"
    yield f"entries of the dead handed back: {figures(tally.left_s)}"
    yield f"a fresh document after the storm: {figures(tally.fresh_s)}"
    yield from (f"LOST {name}" for name in verdict.lost)
    yield from (f"DOUBLE {name}" for name in verdict.double)
    yield from (f"FAULT {problem}" for problem in verdict.faults)
    yield (
        f"{tally.kills.total()} kills, {verdict.num_documents} documents, "
        f"{len(verdict.lost)} lost, {len(verdict.double)} double"
    )


def figures(times_s: Sequence[float]) -> str:
    """Return the usual figures of some times in seconds."""
    if not times_s:
        return "none"
    p50, p99 = quantile(times_s, 0.5), quantile(times_s, 0.99)
    return f"n={len(times_s)} p50={p50:.2f} s p99={p99:.2f} s max={max(times_s):.2f} s"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common(12)) or "nothing"


def _moments(folder: Path) -> Counter[str]:
    texts = [path.read_text() for path in folder.rglob("obituaries")]
    lines = "".join(texts).splitlines()
    return Counter(line.partition(" ")[2] for line in lines)


def _events(folder: Path) -> Counter[str]:
    """Count warnings and errors by the event's name."""
    found: Counter[str] = Counter()
    for log in folder.rglob("*.log"):
        for line in log.read_text(errors="replace").splitlines():
            if '"level": "warning"' in line or '"level": "error"' in line:
                found[line.partition('"event": "')[2].partition('"')[0]] += 1
            elif line.startswith("Traceback"):
                found["Traceback"] += 1
    return found
