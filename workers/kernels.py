"""The engine's own CPU kernels, built before an engine starts, so that none waits for it unseen.

Decides when they are built: once for these sources and this torch, ahead by `make model` or an
image's build, else by the first service that starts, which says so. Engines work without them.
Imports neither torch nor engine; `python -m engine.native` does, in a process of its own.
`python -m workers.kernels` prepares them, and says what came out.
"""

import hashlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from workers.smollm2 import Report

_ROOT = Path(__file__).resolve().parents[1]
_NATIVE = _ROOT / "engine" / "native"
#: Beside the kernels, which engine.native keeps there.
_NOTES = Path("~/.cache/docmill/native")


def prepare(report: Report, notes: Path = _NOTES) -> str | None:
    """Build the kernels unless that was tried before; return what came out, None if it was.

    A build that fails is no error: the reason is returned, and noted, so that it is not tried
    again for the same sources and torch.

    Args:
        report: Told when it begins.
        notes: Where it is noted what was tried.

    Cost: nothing the second time; 2 s without a compiler, 10 to 20 s with one.
    """
    note: Path | None
    try:
        note = notes.expanduser() / f"tried-{_version()}"
        if note.exists():
            return None
    except (OSError, RuntimeError):  # no home, or one that cannot be read
        note = None
    report("preparing kernels for this processor (once, up to 20 s)")
    done = subprocess.run(
        [sys.executable, "-m", "engine.native"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout or done.stderr).strip().splitlines() or ["no word"]
    if note is not None:
        _write(note, said[-1])
    return said[-1]


def _version() -> str:
    """Return what differs where kernels have to be built anew: torch, Python and the sources."""
    digest = hashlib.blake2b(f"{metadata.version('torch')} {sys.version}".encode(), digest_size=6)
    for source in sorted([*_NATIVE.glob("build.py"), *_NATIVE.glob("src/*")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _write(note: Path, said: str) -> None:
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{said}\n", encoding="utf-8")
    except OSError:
        return  # no home to write to: nothing was built there either, and it is tried again


def _report_to_person(line: str) -> None:
    sys.stderr.write(f"docmill: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    if said := prepare(_report_to_person):
        _report_to_person(said)
