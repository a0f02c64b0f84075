"""The output file of a run: what an earlier run left in it, and adding to it.

Decides which documents need not be asked about again: those with an answer. Error records of an
earlier run are taken out, because their documents run again, and so is a last line that a killed
run left torn; not before there is a first result, so that a run that fails leaves the file as it
was. A failure that a later result replaces, because its document was retried meanwhile, is taken
out on closing. Everything else in the file stays byte for byte. May import docmill.results.
"""

import contextlib
import errno
import fcntl
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from docmill.errors import IntakeError
from docmill.results import Result


@dataclass(slots=True)
class Earlier:
    """What an output file holds: the answers, and how much has to go.

    `answered` maps a custom id to what was asked and of which model, as `Result` has them.
    """

    answered: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    num_failed: int = 0
    is_torn: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether the file can be added to as it is."""
        return not self.num_failed and not self.is_torn

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
            self._is_clean = self.earlier.is_clean
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
        for number, line in self._lines():
            if not line.endswith(b"\n"):
                found.is_torn = True
                break
            result = self._read(number, line)
            if result.ok:
                question = (sys.intern(result.spec), result.model and sys.intern(result.model))
                found.answered[result.custom_id] = question
            else:
                found.num_failed += 1
        return found

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        yield from enumerate(self._file, start=1)

    def _read(self, number: int, line: bytes) -> Result:
        try:
            return Result.from_openai(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise IntakeError(
                f"output {self.path}, line {number} is not a result of docmill; choose another "
                "--output, or move this file away"
            ) from error

    def _clean(self, keeps: Callable[[Result], bool]) -> None:
        """Put a file with only the records to keep in this one's place, in one step."""
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)
        cleaned = os.fdopen(handle, "w+b")
        try:
            for number, line in self._lines():
                if line.endswith(b"\n") and keeps(self._read(number, line)):
                    cleaned.write(line)
            cleaned.flush()
            os.fsync(cleaned.fileno())
            os.fchmod(cleaned.fileno(), self.path.stat().st_mode & 0o777)
            fcntl.flock(cleaned, fcntl.LOCK_EX)
            Path(name).replace(self.path)
        except BaseException:
            _close(cleaned)
            Path(name).unlink(missing_ok=True)
            raise
        self._file.close()
        self._file = cleaned
        self._is_clean = True

    def write(self, result: Result) -> None:
        """Add one result; it survives the end of this process.

        Before the first one, what has to go of an earlier run is taken out.

        Raises:
            IntakeError: The disk is full, the file cannot be written any more, or it is gone.
        """
        try:
            if not self._is_clean and self._is_in_place():
                self._clean(lambda earlier: earlier.ok)
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
        if self._replaced:
            # should it fail, the records stay, and a later run takes them out
            with contextlib.suppress(OSError, IntakeError):
                if self._is_in_place():
                    self._clean(self._is_last)
        if self._made is not None:
            with contextlib.suppress(OSError):
                if self._is_in_place() and not self.path.stat().st_size:
                    self._made.unlink()
        _close(self._file)


def _close(file: IO[bytes]) -> None:
    """Close a file; closing tries once more to write what could not be written, which was told."""
    with contextlib.suppress(OSError):
        file.close()
