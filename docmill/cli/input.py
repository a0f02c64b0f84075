"""The command line's input, looked through once before anything starts.

What could not run at all is refused here as a whole, in one line; a single bad document is not: it
becomes an error record when its turn comes. May import docmill.intake and docmill.request.
"""

import contextlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docmill import intake
from docmill.errors import IntakeError
from docmill.intake import Document, Item
from docmill.intake.scan import Scan, scan_items
from docmill.request import SpecBook


def look_through(
    inputs: Sequence[str], options: Mapping[str, Any], output: Path | None = None
) -> Scan:
    """Read all input once and refuse what could not run.

    Raises:
        IntakeError: Nothing to read, a custom id stands twice, there is no prompt, the output is
            one of the inputs, or an input is no file and no folder.
        JobRejected: An option cannot be used.

    Cost: One pass over the files; memory grows with the number of custom ids only.
    """
    book = SpecBook(options)
    for name in inputs:
        _refuse_pipe(name)
    found = scan_items(_checked(inputs, book, output))
    if found.duplicates:
        more = f" (and {found.num_duplicates - 1:,} more)" if found.num_duplicates > 1 else ""
        raise IntakeError(
            f"{found.duplicates[0]}{more}; nothing was run: give each document its own id"
        )
    if not found.count and not found.num_problems:
        raise IntakeError(f"there are no documents in {', '.join(inputs)}")
    return found


def _refuse_pipe(name: str) -> None:
    """Refuse what gives its content only once: it is looked through first, and then read again."""
    with contextlib.suppress(OSError):  # intake words it
        mode = Path(name).stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise IntakeError(f"input {name} is no file and no folder: save its content to a file")


def _checked(inputs: Sequence[str], book: SpecBook, output: Path | None) -> Iterator[Item]:
    for item in intake.read(inputs):
        if output is not None and _is_file(item, output, inputs):
            raise IntakeError(f"output {output} is also an input: choose another --output")
        if isinstance(item, Document) and not book.has_prompt and not _has_prompt(item):
            raise IntakeError(
                f"there is no prompt for {item.custom_id}: say what to ask with "
                '--prompt "…" or --prompt @FILE, or in the line itself'
            )
        yield item


def _has_prompt(item: Document) -> bool:
    return any(name in (item.options or {}) for name in ("prompt", "messages"))


def _is_file(item: Item, path: Path, inputs: Sequence[str]) -> bool:
    name = str((item.source or {}).get("file", ""))
    if not name.endswith(path.name):  # spares a look at the disk for every document
        return False
    candidates = [Path(name), *(Path(root) / name for root in inputs)]
    return any(candidate.resolve() == path.resolve() for candidate in candidates)


def count_left(
    inputs: Sequence[str],
    options: Mapping[str, Any],
    answered: Mapping[str, tuple[str, str | None]],
    *,
    names_model: bool,
) -> int:
    """Count the documents without an answer, and make sure that the answers are to this question.

    Args:
        inputs: What will be run.
        options: What is asked now.
        answered: What was asked before, by custom id; see `resume.Earlier`.
        names_model: Whether the model that is asked was named, so that it is part of the question.

    Raises:
        IntakeError: The answers are to another question.
    """
    num_left = 0
    books: dict[str | None, SpecBook] = {}
    for item in intake.read(inputs):
        spec, model = answered.get(item.custom_id, ("", None))
        num_left += item.custom_id not in answered
        if not spec or not isinstance(item, Document):
            continue
        book = books.get(model)
        if book is None:
            named = {"model": model} if names_model else {}
            book = books[model] = SpecBook({**options, **named})
        if book.spec(item.options).digest != spec:
            raise IntakeError(
                f"the output has an answer to another question about {item.custom_id}: choose "
                "another --output, or ask the same as before"
            )
    return num_left


def read_prompt(prompt: str | None) -> str | None:
    """Return the prompt, read from a file if it is `@FILE`.

    Raises:
        IntakeError: The file cannot be read.
    """
    if prompt is None or not prompt.startswith("@"):
        return prompt
    path = Path(prompt[1:])
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise IntakeError(f"prompt file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IntakeError(
            f"prompt file {path} is not UTF-8 at byte offset {error.start}"
        ) from error
