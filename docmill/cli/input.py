"""The command line's input, looked through once before anything starts.

What could not run at all is refused here as a whole, in one line; a single bad document is not: it
becomes an error record when its turn comes. May import docmill.intake, docmill.request,
docmill.cli.asked and docmill.cli.output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from docmill import intake
from docmill.cli.asked import check_question, check_reading, hints, ignored_hints
from docmill.cli.output import say
from docmill.errors import IntakeError, Reason
from docmill.intake import Document, Item, Refusal, Skipped
from docmill.intake.base import position_of
from docmill.intake.formats import format_of
from docmill.intake.scan import Scan, scan_items
from docmill.request import SpecBook

_SAY_WHAT = 'say what to ask with --prompt "…" or --prompt @FILE'


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be answered.

    Args:
        inputs: Files, folders and globs.
        options: What is asked about documents that do not say it themselves.
        reading: How files are read, as arguments of `docmill.read`.
        terms: What `Client.submit` takes beside the options.
        output: Where results go; it is no input, wherever it lies. None: to standard output, or to
            nobody yet.
        limit: How many documents are taken, the first ones; None: all.
    """

    inputs: Sequence[str]
    options: Mapping[str, Any]
    reading: Mapping[str, Any] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)
    output: Path | None = None
    limit: int | None = None


def documents(work: Work, *, extract: bool | Callable[[str], bool] = True) -> Iterator[Item]:
    """Yield what the inputs hold; a document without any prompt is refused, alone.

    `extract` says of which documents, by custom id, the text is read where a library has to read
    it; that of the others is empty.
    """
    for item in _items(work, extract=extract):
        yield _unasked(item) if _is_unasked(item, work) else item


def _items(
    work: Work,
    *,
    extract: bool | Callable[[str], bool],
    on_skipped: Callable[[str], None] | None = None,
) -> Iterator[Item]:
    items = (
        item
        for item in intake.read(work.inputs, extract=extract, on_skipped=on_skipped, **work.reading)
        if work.output is None or not _is_file(item, work.output, work.inputs)
    )
    return islice(items, work.limit)


def _is_unasked(item: Item, work: Work) -> bool:
    if not isinstance(item, Document):
        return False
    return not _has_prompt(work.options) and not _has_prompt(item.options or {})


def _has_prompt(options: Mapping[str, Any]) -> bool:
    return "prompt" in options or "messages" in options


def _unasked(item: Item) -> Refusal:
    message = f"{position_of(item.source, 1)}: there is no prompt: {_SAY_WHAT}, or in the line"
    return Refusal(item.custom_id, Reason.BAD_REQUEST, message, item.source)


def look_through(work: Work) -> Scan:
    """Read all input once and refuse what could not run; say what was likely not meant.

    Raises:
        IntakeError: Nothing to read, a custom id stands twice, no document has a prompt, the output
            is one of the inputs, or an input is no file and no folder.
        JobRejected: An option cannot be used.

    Cost: One pass over the files; memory grows with the number of custom ids only.
    """
    check_question(work.options)
    for name in work.inputs:
        if work.output is not None and Path(name).resolve() == work.output.resolve():
            raise IntakeError(f"output {work.output} is also an input: choose another --output")
    check_reading(work.inputs, work.reading)
    skipped = Skipped()
    found = scan_items(_checked(work, skipped), skipped)
    if found.duplicates:
        more = f" (and {found.num_duplicates - 1:,} more)" if found.num_duplicates > 1 else ""
        raise IntakeError(
            f"{found.duplicates[0]}{more}; nothing was run: give each document its own id"
        )
    if not found.count and not found.num_problems:
        raise IntakeError(f"there are no documents in {', '.join(work.inputs)}")
    for hint in (*hints(work.options), *ignored_hints(found.ignored)):
        say(hint)
    if skipped:
        say(str(skipped))
    return found


def _checked(work: Work, skipped: Skipped) -> Iterator[Item]:
    """Yield the inputs' documents; at their end, refuse them where none is asked anything."""
    is_asked = False
    unasked: str | None = None

    def note(name: str) -> None:
        if work.output is None or Path(name).resolve() != work.output.resolve():
            skipped.add(name)

    for item in _items(work, extract=False, on_skipped=note):
        if _is_unasked(item, work):
            unasked = unasked or item.custom_id
            yield _unasked(item)
            continue
        is_asked = is_asked or isinstance(item, Document)
        yield item
    if unasked and not is_asked:
        raise IntakeError(f"there is no prompt for {unasked}: {_SAY_WHAT}, or in the line itself")


def _is_file(item: Item, path: Path, inputs: Sequence[str]) -> bool:
    name = str((item.source or {}).get("file", ""))
    if not name.endswith(path.name):  # spares a look at the disk for every document
        return False
    candidates = [Path(name), *(Path(root) / name for root in inputs)]
    return any(candidate.resolve() == path.resolve() for candidate in candidates)


def check_service_input(paths: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse files of the service's, which nobody here can look at, that surely need a prompt.

    Raises:
        IntakeError: There is none, and none of them can have, or be, lines that bring their own.
    """
    forms = [format_of(Path(path).name) for path in paths]
    may_bring_own = any(form is None or form.kind == "lines" for form in forms)
    if not _has_prompt(options) and not may_bring_own:
        raise IntakeError(f"there is no prompt for {paths[0]}: {_SAY_WHAT}")


def count_left(work: Work, answered: Mapping[str, tuple[str, str | None]], *, output: str) -> int:
    """Count the documents without an answer, and make sure that the answers are to this question.

    Of which model they are does not matter, nor whether it was named.

    Args:
        work: What is asked now.
        answered: What was asked before, by custom id; see `resume.Earlier`.
        output: What to call the file that holds the answers.

    Raises:
        IntakeError: The answers are to another question.
    """
    num_left = 0
    books: dict[str | None, SpecBook] = {None: SpecBook(work.options)}
    for item in documents(work, extract=False):
        spec, model = answered.get(item.custom_id, ("", None))
        num_left += item.custom_id not in answered
        if not spec or not isinstance(item, Document):
            continue
        if model not in books:
            books[model] = SpecBook({**work.options, "model": model})
        if all(books[name].spec(item.options).digest != spec for name in {None, model}):
            raise IntakeError(
                f"{output} holds answers to another prompt or other parameters: choose another "
                "--output, or repeat the old command"
            )
    return num_left


def read_prompt(prompt: str | None, option: str = "--prompt") -> str | None:
    """Return the prompt that an option gives, read from a file if it is `@FILE`.

    Raises:
        IntakeError: The file cannot be read, or the prompt is empty.
    """
    if prompt is None:
        return None
    text = _read_prompt_file(Path(prompt[1:])) if prompt.startswith("@") else prompt
    if not text.strip():
        what = "the prompt" if option == "--prompt" else option
        raise IntakeError(f'{what} is empty: say what to ask with {option} "…" or {option} @FILE')
    return text


def _read_prompt_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise IntakeError(
            f"prompt file {path} cannot be read: {error.strerror}; check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise IntakeError(
            f"prompt file {path} is not UTF-8 at byte offset {error.start}"
        ) from error
