"""Results in a file: JSON Lines in the OpenAI Batch result format, one record a line.

Lines end at line feeds and nowhere else. A last line that a killed writer left torn is not a
record. Of several records with one custom id the last counts, so a file is only ever added to, and
records that others replace are taken out afterwards, in one step. May import docmill.results.
"""

import json
import os
import tempfile
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO

from docmill.errors import IntakeError
from docmill.results import Result

#: How a record begins; a last line that begins otherwise was not left by a killed writer.
_BEGINNING = b'{"id": "'


def read_results(path: str | PathLike[str]) -> Iterator[Result]:
    """Yield the results that a file holds; memory is bounded by its longest line.

    Of two records with the same custom id, the later one counts: its document failed first and
    was retried while the file was written.

    Raises:
        IntakeError: The file cannot be read, or a line is not a result.
    """
    return (result for _, result in _records(Path(path)))


def _records(path: Path) -> Iterator[tuple[bytes, Result]]:
    """Yield each record's line and what it says."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                result = parse_record(line, f"{path}, line {number} is not a result")
                if result is not None:
                    yield line, result
    except OSError as error:
        raise IntakeError(f"results {str(path)!r} cannot be read: {error.strerror}") from error


def parse_record(line: bytes, problem: str) -> Result | None:
    """Return the result on a line of a file; None if it is what a killed writer left of its last.

    Raises:
        IntakeError: It is neither; says `problem`.
    """
    try:
        value = json.loads(line)
    except ValueError as error:
        if not line.endswith(b"\n") and line[: len(_BEGINNING)] == _BEGINNING[: len(line)]:
            return None
        raise IntakeError(f"{problem}: {error}") from error
    try:
        return Result.from_openai(value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise IntakeError(f"{problem}: {type(error).__name__} {error}") from error


def write_results(results: Iterable[Result], path: str | PathLike[str]) -> int:
    """Write results to a file as they come, and return how many there were.

    What the file holds of other documents stays. A document's earlier record is replaced, which is
    done at the end, also of an interrupted call: until then the later record counts. So it does for
    a document that is retried meanwhile.

    Raises:
        IntakeError: The file cannot be written, or holds something else.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe, say: nothing is kept there
            with path.open("wb") as file:
                return sum(_write(file, result) for result in results)
        earlier = {result.custom_id for result in read_results(path)} if path.exists() else set()
        with path.open("a+b") as file:
            return _add(file, path, results, earlier)
    except OSError as error:
        raise IntakeError(f"results {str(path)!r} cannot be written: {error.strerror}") from error


def _add(file: IO[bytes], path: Path, results: Iterable[Result], earlier: Container[str]) -> int:
    """Add results and take out which earlier ones they replace; return how many were added."""
    end, count = end_last_line(file), 0
    replaced: set[str] = set()
    try:
        for result in results:
            count += _write(file, result)
            if result.custom_id in earlier:
                replaced.add(result.custom_id)
    finally:
        if replaced:
            _take_out(path, end, replaced)
    return count


def _write(file: IO[bytes], result: Result) -> int:
    """Write one result, which is the number returned."""
    file.write(result.to_json().encode() + b"\n")
    file.flush()  # what is there survives the end of this process
    return 1


def _take_out(path: Path, end: int, custom_ids: Container[str]) -> None:
    """Take out those of the records before `end` that are of these documents."""
    at = 0
    with replacing(path) as kept:
        for line, result in _records(path):
            if at >= end or result.custom_id not in custom_ids:
                kept.write(line)
            at += len(line)


def records_of_others(path: Path, custom_ids: Container[str]) -> Iterator[bytes]:
    """Yield a file's records, a line each, but for those of these documents.

    Raises:
        IntakeError: The file cannot be read, or a line is not a result.
    """
    for line, result in _records(path):
        if result.custom_id not in custom_ids:
            yield line if line.endswith(b"\n") else line + b"\n"


def end_last_line(file: IO[bytes]) -> int:
    """Make a file of records ready for another one and return its length.

    A last record without its line feed gets it; what a killed writer left is cut off.
    """
    end, last = 0, b"\n"
    file.seek(0)
    for line in file:
        end, last = end + len(line), line
    if last.endswith(b"\n"):
        return end
    if parse_record(last, "the last line is not a result") is None:
        end -= len(last)
        file.truncate(end)
        return end
    file.seek(end)
    file.write(b"\n")
    file.flush()
    return end + 1


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give an empty file that takes a file's place, in one step, where the block ends well.

    Otherwise the file stays as it was. Its permissions stay, and so do links to it by name.
    """
    path = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
