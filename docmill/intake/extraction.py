"""Text out of files through the process that reads them: started late, kept, replaced when it dies.

Decides whom to blame: a process that ends while it reads a file has found its match in that file
only if it was fresh; one that had read others gets the file once more in a new one. May import
docmill.extract's frames and limits.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Self

from docmill.errors import InvalidDocument, Reason
from docmill.extract.frames import receive, send
from docmill.extract.limits import Limits, exit_problem

#: Where the package stands from which the process runs.
_BESIDE = Path(__file__).resolve().parents[2]

#: How much larger than its text a file may be: pictures, fonts and markup take their part.
FILE_RATIO = 16

#: How long a process that was told to end may take.
_PATIENCE_S = 2.0


class Extraction:
    """Reads one file after another; not to be used from two threads at once."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the process that reads, while there is one."""
        return self._process.pid if self._process else None

    def read(
        self, path: Path, kind: str, *, encoding: str, max_document_bytes: int
    ) -> tuple[str, dict[str, Any]]:
        """Return a file's text, and what is known about it.

        Raises:
            InvalidDocument: It has none, is broken, or breaks a limit.
            OSError: It cannot be opened.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
        limit = FILE_RATIO * max_document_bytes
        if size > limit:
            problem = f"{size} bytes are more than the {limit} a file of its kind may have"
            raise InvalidDocument(Reason.TOO_LARGE, problem)
        order = {
            "path": os.fsencode(path.absolute()),
            "format": kind,
            "encoding": encoding,
            "max_text_bytes": max_document_bytes,
            "max_file_bytes": limit,
        }
        is_fresh = self._process is None
        answer = self._ask(order)
        if isinstance(answer, int) and not is_fresh:
            answer = self._ask(order)
        if isinstance(answer, int):
            raise InvalidDocument(Reason.EXTRACTION, exit_problem(answer, self._limits))
        if "code" in answer:
            raise InvalidDocument(Reason(answer["code"]), answer["message"])
        return answer["text"].decode("utf-8", "surrogatepass"), answer["about"]

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is None:
            return
        orders, _ = self._pipes(self._process)
        orders.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap(self._process)

    def _ask(self, order: dict[str, Any]) -> dict[str, Any] | int:
        """Return the process' answer, or the status with which it ended instead."""
        process = self._process = self._process or self._started()
        orders, answers = self._pipes(process)
        try:
            send(orders, order)
            answer = receive(answers)
        except OSError:
            answer = None
        return self._reap(process) if answer is None else answer

    def _started(self) -> subprocess.Popen[bytes]:
        limits = (self._limits.cpu_s, self._limits.wall_s, self._limits.memory_mib)
        return subprocess.Popen(
            [sys.executable, "-m", "docmill.extract", *map(str, limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_BESIDE,  # where -m looks first: this package, not what lies in the user's folder
            start_new_session=True,  # a terminal's Ctrl-C is for us to act on
        )

    def _reap(self, process: subprocess.Popen[bytes]) -> int:
        self._process = None
        for pipe in self._pipes(process):
            with contextlib.suppress(OSError):  # an order that it did not take any more
                pipe.close()
        return process.wait()

    @staticmethod
    def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdin, process.stdout
