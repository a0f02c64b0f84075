"""Who takes part in bench/engine.py, and the process that each is.

Decides how an engine's process is started, asked and ended, and what is told of its memory and of
what it costs while it waits. May import the standard library and bench.engine_peers.base.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu import session_cpu_s
from bench.engine_peers.base import Answers
from bench.engine_peers.llama_cpp_engine import SERVER
from bench.report import ROOT

#: Where `make bench-peers` puts the model's GGUF files.
GGUF_DIR = ROOT / "build" / "gguf"
_INSTALL = "make bench-peers"
_END_S = 20.0


@dataclass(frozen=True, slots=True)
class Side:
    """An engine that can be measured.

    `kind`: what is asked for by name; several ways to run one library share it. `needs`: what its
    installation leaves. `once`: so slow that one run has to do, and no full workload.
    """

    name: str
    kind: str
    python: Path
    needs: tuple[Path, ...] = ()
    once: bool = False

    def missing(self) -> str | None:
        """Return what is missing and what installs it, None if nothing is."""
        absent = [path for path in (self.python, *self.needs) if not path.exists()]
        if not absent:
            return None
        return f"{self.name}: not installed ({absent[0].relative_to(ROOT)}); run: {_INSTALL}"


def all_sides() -> list[Side]:
    """Return docmill and its peers, in the order in which they take turns."""
    own = Path(sys.executable)
    vllm, openvino = (ROOT / f".venv-{name}" / "bin" / "python" for name in ("vllm", "openvino"))
    installed = tuple(python.parent.parent / ".installed" for python in (vllm, openvino))
    return [
        Side("docmill", "docmill", own),
        Side("vllm_eager", "vllm", vllm, installed[:1]),
        Side("vllm_compiled", "vllm", vllm, installed[:1]),
        Side("openvino", "openvino", openvino, (installed[1], GGUF_DIR / "smollm2-q4_1.gguf")),
        Side("llama_cpp_bf16", "llama_cpp", own, (SERVER, GGUF_DIR / "smollm2-bf16.gguf")),
        Side("llama_cpp_q8_0", "llama_cpp", own, (SERVER, GGUF_DIR / "smollm2-q8_0.gguf")),
        Side("generate_sorted_8", "generate", own),
        Side("generate_one_by_one", "generate", own, once=True),
        Side("generate_as_they_come_8", "generate", own, once=True),
        Side("generate_batch", "generate_batch", own, once=True),
    ]


def chosen(kinds: Iterable[str] | None) -> list[Side]:
    """Return docmill and the peers of these kinds, all of them by default.

    Raises:
        SystemExit: There is no such kind.
    """
    sides = all_sides()
    known = {side.kind for side in sides}
    wanted = known if kinds is None else {"docmill", *kinds}
    if unknown := wanted - known:
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}; one of {sorted(known)}")
    return [side for side in sides if side.kind in wanted]


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of one workload."""

    seconds: float
    answers: Answers


class Process:
    """A side's process, in a session of its own, so that what it starts is counted and ended.

    Args:
        side: Whose.
        task: The file that says what it has to do.
        threads: Threads of what reads `OMP_NUM_THREADS`.
        log_path: Where what it prints goes.
    """

    def __init__(self, side: Side, task: Path, threads: int, log_path: Path) -> None:
        self.side = side
        self._log_path = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [str(side.python), "-m", "bench.engine_peers", side.name, str(task)],
                cwd=ROOT,
                env=os.environ  # noqa: TID251 - a child inherits the bench's environment
                | {"OMP_NUM_THREADS": str(threads)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._idle_cpu_s = 0.0

    def wait_until_ready(self) -> None:
        """Wait until the model is loaded and warm."""
        self._hear()
        self._idle_since = session_cpu_s(self._process.pid)

    def run(self, workload: str) -> Turn:
        """Let it answer a workload."""
        pid, orders = self._process.pid, self._process.stdin
        assert orders is not None
        self._idle_cpu_s += session_cpu_s(pid) - self._idle_since
        print(workload, file=orders, flush=True)
        heard = self._hear()
        self._idle_since = session_cpu_s(pid)
        return Turn(heard["seconds"], heard["answers"])

    def _hear(self) -> dict[str, Any]:
        reports = self._process.stdout
        assert reports is not None
        line = reports.readline()
        if not line:
            log = self._log_path.read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"{self.side.name} ended early; the end of its log:\n{log[-2000:]}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    @property
    def idle_cpu_s(self) -> float:
        """Seconds of processor time that it has used while others had their turns."""
        return self._idle_cpu_s

    def peak_rss_gib(self) -> float:
        """Return the most memory that its living processes have held, added up."""
        return sum(_peak_rss_kib(pid) for pid in _session(self._process.pid)) / 2**20

    def end(self) -> None:
        """End it, and what it has started."""
        orders, reports = self._process.stdin, self._process.stdout
        assert orders is not None
        assert reports is not None
        orders.close()  # no more orders: it ends by itself
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        reports.close()
        for pid in _session(self._process.pid):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)


def _session(session: int) -> list[int]:
    """Return the processes of a session."""
    members = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getsid(int(folder.name)) == session:
                    members.append(int(folder.name))
            except ProcessLookupError:  # it has ended meanwhile
                continue
    return members


def _peak_rss_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended meanwhile
        return 0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) if peaks else 0


def log_folder() -> Path:
    """Return a new folder for the processes' logs, which stays."""
    return Path(tempfile.mkdtemp(prefix="dm-bench-engine-"))
