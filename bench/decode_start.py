"""How long one document waits for everything to start: `docmill run` until its answer is written.

Decides what counts: a fresh process each time, an embedded Redis of its own, the model converted
before; from the moment that the command is started until the answer's line is in the file. May
import the standard library.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.report import ROOT

_DOCUMENT = "The capital of France is Paris. The capital of Italy is Rome."
_POLL_S = 0.01
_PATIENCE_S = 300.0


def start_to_first_document_s(model: Path, threads: int) -> float:
    """Answer one short document with a service that is started for it; return the seconds.

    Raises:
        SystemExit: The command failed.
    """
    with TemporaryDirectory(prefix="dm-bench-start-") as name:
        folder = Path(name)
        document, answers, log = folder / "document.txt", folder / "answers.jsonl", folder / "log"
        document.write_text(_DOCUMENT, encoding="utf-8")
        command = [
            *(str(Path(sys.executable).with_name("docmill")), "run", str(document)),
            *("--output", str(answers), "--prompt", "Which capitals does the text name?"),
            *("--max-tokens", "16", "--model", str(model)),
        ]
        settings = {"DOCMILL_STATE_DIR": str(folder / "state"), "OMP_NUM_THREADS": str(threads)}
        with log.open("wb") as into:
            started = time.perf_counter()
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | settings,  # noqa: TID251 - a child inherits the environment
                stdout=into,
                stderr=into,
            )
            try:
                _wait_for_a_line(answers, process, started + _PATIENCE_S)
                return time.perf_counter() - started
            except TimeoutError as error:
                shown = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise SystemExit(f"docmill run gave no answer:\n{shown}") from error
            finally:
                process.terminate()
                process.wait()


def _wait_for_a_line(answers: Path, process: "subprocess.Popen[bytes]", give_up_at: float) -> None:
    while not (answers.exists() and b"\n" in answers.read_bytes()):
        if process.poll() not in (None, 0) or time.perf_counter() > give_up_at:
            raise TimeoutError
        time.sleep(_POLL_S)
