"""Results in a file: JSON Lines in the OpenAI Batch result format, one record a line.

Lines end at line feeds and nowhere else. A last line that a killed writer left torn is not a
record. May import docmill.results.
"""

import json
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

from docmill.errors import IntakeError
from docmill.results import Result


def read_results(path: str | PathLike[str]) -> Iterator[Result]:
    """Yield the results that a file holds; memory is bounded by its longest line.

    Of two records with the same custom id, the later one counts: its document failed first and
    was retried while the file was written.

    Raises:
        IntakeError: The file cannot be read, or a line is not a result.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield _parse(line, f"{path}, line {number}")
    except OSError as error:
        raise IntakeError(f"results {str(path)!r} cannot be read: {error.strerror}") from error


def _parse(line: bytes, where: str) -> Result:
    try:
        return Result.from_openai(json.loads(line))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise IntakeError(f"{where} is not a result: {type(error).__name__} {error}") from error


def write_results(results: Iterable[Result], path: str | PathLike[str]) -> int:
    """Write results to a new file as they come, and return how many there were.

    A document that is retried meanwhile gets another record, which replaces its failure.

    Raises:
        IntakeError: The file cannot be written.
    """
    count = 0
    try:
        with Path(path).open("wb") as file:
            for result in results:
                file.write(result.to_json().encode() + b"\n")
                file.flush()  # what is there survives the end of this process
                count += 1
    except OSError as error:
        raise IntakeError(f"results {str(path)!r} cannot be written: {error.strerror}") from error
    return count
