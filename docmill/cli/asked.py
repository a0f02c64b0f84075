"""What a command was asked, looked at before anything starts: refusals in the command's own words.

Decides which options cannot be used and what was likely meant otherwise; the rules themselves are
decided in docmill.request and docmill.intake. May import docmill.request and docmill.intake.
"""

import contextlib
import difflib
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docmill.errors import IntakeError, JobRejected
from docmill.intake.formats import format_of
from docmill.intake.paths import Roots
from docmill.progress import counted
from docmill.request import PLACE, SpecBook

#: Options whose name on the command line does not follow from the client's.
_TYPED = {"rules": "--rule", "text_column": "--column"}
#: What is said of tables alone, by the names of `docmill.read`.
_OF_TABLES = ("text_column", "id_column", "separator")
_NAME = re.compile(r"[a-z_]{2,32}(?=[: ])")
#: A single word in braces, with or without blanks around it.
_PLACE_LIKE = re.compile(r"\{ ?([A-Za-z_]{2,20}) ?\}")
#: What others call the document's place.
_PLACE_NAMES = ("document", "doc", "text", "input", "content", "article", "passage", "body")
_LIKENESS = 0.8


def check_question(options: Mapping[str, Any]) -> None:
    """Refuse what no document could be asked.

    Raises:
        JobRejected: It begins with the option as it is typed.
    """
    try:
        SpecBook(options)
    except JobRejected as error:
        raise JobRejected(_as_typed(error.message, options)) from error


def _as_typed(message: str, options: Mapping[str, Any]) -> str:
    name = _NAME.match(message)
    if name is None or name[0] not in options:
        return message
    return option_of(name[0]) + message[name.end() :]


def option_of(name: str) -> str:
    """Return how an option is typed that the client calls `name`."""
    return _TYPED.get(name, f"--{name.replace('_', '-')}")


def check_reading(inputs: Sequence[str], reading: Mapping[str, Any]) -> None:
    """Refuse options that no file of the input could use, and what gives its content only once.

    Raises:
        IntakeError: Something is said of tables and there is none; an input is no file and no
            folder; or a path cannot be read.
    """
    for name in inputs:
        _refuse_pipe(name)
    named = [name for name in _OF_TABLES if name in reading]
    if not named:
        return
    forms = (file.form for file in Roots(inputs, None).files())
    if not any(form is not None and form.kind == "table" for form in forms):
        raise _no_table(named[0], inputs)


def _refuse_pipe(name: str) -> None:
    with contextlib.suppress(OSError):  # intake words it
        mode = Path(name).stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise IntakeError(f"input {name} is no file and no folder: save its content to a file")


def check_service_reading(inputs: Sequence[str], reading: Mapping[str, Any]) -> None:
    """Refuse the same of files of the service's, as far as their names tell.

    Raises:
        IntakeError: Something is said of tables, and no input is one or can hold one.
    """
    named = [name for name in _OF_TABLES if name in reading]
    forms = [format_of(name) for name in inputs]
    if named and not any(form is None or form.kind == "table" for form in forms):
        raise _no_table(named[0], inputs)


def _no_table(name: str, inputs: Sequence[str]) -> IntakeError:
    return IntakeError(
        f"{option_of(name)} is for .csv and .tsv files, and there is none in {', '.join(inputs)}"
    )


def hints(options: Mapping[str, Any]) -> Iterator[str]:
    """Tell what can be asked but was likely not meant: another mark than the document's place."""
    for name in ("prompt", "combine_prompt"):
        text = options.get(name)
        if not isinstance(text, str) or PLACE in text:
            continue
        likely = next((found[0] for found in _PLACE_LIKE.finditer(text) if _is_place(found)), None)
        if likely:
            yield (
                f"{option_of(name)} holds {likely}, which stands in the prompt as it is: "
                f"{PLACE} marks the document's place; without it the document follows the prompt"
            )


def _is_place(found: re.Match[str]) -> bool:
    name = found[1].casefold()
    is_like = difflib.get_close_matches(name, ("document",), cutoff=_LIKENESS)
    return name.removesuffix("s") in _PLACE_NAMES or bool(is_like)


def ignored_hints(ignored: Counter[tuple[str, str]]) -> Iterator[str]:
    """Tell which keys of lines were passed over, by key and the option that is likely meant."""
    for (key, option), count in ignored.most_common():
        yield (
            f"{counted(count, 'line')} with the key {key!r}, which is ignored: is {option!r} meant?"
        )
