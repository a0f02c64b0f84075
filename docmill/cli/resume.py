"""The output file of a run: what an earlier run left in it, and adding to it.

Decides which documents need not be asked about again: those with an answer. What is there is only
added to, so that an interrupted run loses nothing of it; but for a last line that a killed run left
torn, which makes room for the first result. A failure that a later result replaces, because its
document ran again or was retried meanwhile, is taken out on closing. Everything else in the file
stays byte for byte, whose document it may be of. May import docmill.results_file.
"""

import contextlib
import errno
import fcntl
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from docmill.errors import IntakeError
from docmill.results import Result
from docmill.results_file import end_last_line, parse_record, replacing


@dataclass(slots=True)
class Earlier:
    """The answers that an output file holds.

    `answered` maps a custom id to what was asked and of which model, as `Result` has them.
    """

    answered: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def models_beside(self, name: str) -> list[str]:
        """Return the names of other models than this that answers are of."""
        return sorted({model for _, model in self.answered.values() if model and model != name})


class OutputFile:
    """An output file, locked for one run, read on opening and then added to line by line.

    Args:
        path: The file; made if missing, and gone again on closing if nothing was written.

    Raises:
        IntakeError: It cannot be written, another run writes it, or it holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: Path | None = None
        self._failed: set[str] = set()
        self._told_models: set[str] = set()
        self._replaced: Counter[str] = Counter()
        try:
            # others cannot be read back: a pipe never ends, and neither does /dev/full
            if path.exists() and not path.is_file() and not path.samefile(os.devnull):
                raise IntakeError(f"output {path} is no file; choose one, or - for standard output")
            made = None if path.exists() else path.resolve()
            self._file: IO[bytes] = path.open("a+b")
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            self._lock()
            self._made = made
            self.earlier = self._look()
            self._is_ready = False
        except OSError as error:
            self.close()
            raise self._cannot_write(error) from error
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise IntakeError(
                f"output {self.path} is being written by another run; wait for it, or choose "
                "another --output"
            ) from error

    def _look(self) -> Earlier:
        found = Earlier()
        self._file.seek(0)
        for number, line in enumerate(self._file, start=1):
            result = self._read(number, line)
            if result is None:
                break
            self._note(result)
            if result.ok:
                question = (sys.intern(result.spec), result.model and sys.intern(result.model))
                found.answered[result.custom_id] = question
        return found

    def _read(self, number: int, line: bytes) -> Result | None:
        try:
            return parse_record(line, f"output {self.path}, line {number} is not a result")
        except IntakeError as error:
            raise IntakeError(
                f"{error.message}; choose another --output, or move this file away"
            ) from error

    def _put_in_order(self) -> None:
        """Take out the failures that later records replace."""
        with replacing(self.path) as kept:
            self._file.seek(0)
            for number, line in enumerate(self._file, start=1):
                result = self._read(number, line)
                if result is None or self._is_last(result):
                    kept.write(line)

    def mixture(self, model: str | None) -> str | None:
        """Say, once a model, that answers of others are there beside which this one's come."""
        if model is None or model in self._told_models:
            return None
        self._told_models.add(model)
        others = self.earlier.models_beside(model)
        if not others:
            return None
        return (
            f"{self.path} holds answers of another model ({', '.join(others)}); they are kept: "
            f"choose another --output for those of {model} alone"
        )

    def write(self, result: Result) -> None:
        """Add one result; it survives the end of this process.

        Raises:
            IntakeError: The disk is full, the file cannot be written any more, or it is gone.
        """
        try:
            if not self._is_ready and self._is_in_place():
                end_last_line(self._file)
                self._is_ready = True
            self._file.write(result.to_json().encode() + b"\n")
            self._file.flush()
            self._note(result)
            is_in_place = self._is_in_place()
        except FileNotFoundError:
            is_in_place = False
        except OSError as error:
            raise self._cannot_write(error) from error
        if not is_in_place:
            raise IntakeError(
                f"output {self.path} was removed or replaced while it was written; run the same "
                "command again"
            )

    def _note(self, result: Result) -> None:
        """Keep in mind which failed records have been replaced."""
        if result.custom_id in self._failed:
            self._replaced[result.custom_id] += 1
        if result.ok:
            self._failed.discard(result.custom_id)
        else:
            self._failed.add(result.custom_id)

    def _is_last(self, result: Result) -> bool:
        """Tell whether no later record replaces this one; asked for each in the file's order."""
        if result.ok or not self._replaced[result.custom_id]:
            return True
        self._replaced[result.custom_id] -= 1
        return False

    def _is_in_place(self) -> bool:
        return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))

    def _cannot_write(self, error: OSError) -> IntakeError:
        folder = self.path.parent
        if isinstance(error, FileNotFoundError) and not folder.exists():
            problem = f"there is no folder {folder}; create it, or choose another --output"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = f"{error.strerror}; make room and run the same command again"
        else:
            problem = f"{error.strerror}; choose another --output"
        return IntakeError(f"output {self.path} cannot be written: {problem}")

    def close(self) -> None:
        """Close the file and give it free."""
        if self._replaced and self.path.is_file():  # the null device is none
            # should it fail, the records stay, and a later run takes them out
            with contextlib.suppress(OSError, IntakeError):
                if self._is_in_place():
                    self._put_in_order()
        if self._made is not None:
            with contextlib.suppress(OSError):
                if self._is_in_place() and not self.path.stat().st_size:
                    self._made.unlink()
        _close(self._file)


def _close(file: IO[bytes]) -> None:
    """Close a file; closing tries once more to write what could not be written, which was told."""
    with contextlib.suppress(OSError):
        file.close()
