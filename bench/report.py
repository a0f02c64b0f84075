"""What every bench reports, and how: a table for people, one JSON object for the record.

Decides the form only. May import the standard library and torch's version.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def figure(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Return a figure: its median, least and greatest value, how many, and the unit."""
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "n": len(values),
        "unit": unit,
    }


def report(bench: str, figures: Mapping[str, dict[str, Any]], json_path: Path | None) -> None:
    """Print the figures as a table, and write the JSON object where asked."""
    width = max(map(len, figures))
    print(f"{'figure':{width}}  {'median':>10}  {'min':>10}  {'max':>10}  {'n':>3}  unit")
    for name, each in figures.items():
        numbers = "  ".join(f"{each[key]:>10.4g}" for key in ("median", "min", "max"))
        print(f"{name:{width}}  {numbers}  {each['n']:>3}  {each['unit']}")
    if json_path is not None:
        record = {
            "bench": bench,
            "commit": commit(),
            "machine": machine(),
            "command": " ".join(["python", "-m", f"bench.{bench}", *sys.argv[1:]]),
            "figures": dict(figures),
        }
        json_path.write_text(json.dumps(record, indent=2) + "\n")


def commit() -> str:
    """Return the commit that was measured, marked when the working tree differs from it."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, cores, memory and versions."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [
        line.split(":", 1)[1].strip()
        for line in (cpuinfo.read_text().splitlines() if cpuinfo.exists() else [])
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
