"""What an extractor is given and what it hands back.

May import docmill.errors.
"""

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docmill.errors import InvalidDocument, Reason

#: Titles travel with every result; some are whole paragraphs.
MAX_TITLE_LEN = 500

#: Where the mark of a file's kind stands, and enough to tell text from other things.
_START_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Order:
    """One file to read.

    Args:
        path: Where it is.
        encoding: Of its text, if the file itself does not name one.
        max_text_bytes: The longest text that may come of it, in UTF-8.
        max_file_bytes: The largest file, and the most that may come of its compressed parts.
    """

    path: Path
    encoding: str
    max_text_bytes: int
    max_file_bytes: int


@dataclass(frozen=True, slots=True)
class Extract:
    """A file's text, and what is known of where it stood: title, pages."""

    text: str
    about: dict[str, Any] = field(default_factory=dict)


def too_much_text(limit: int) -> InvalidDocument:
    """Return the refusal of a file whose text is too long."""
    return InvalidDocument(
        Reason.TOO_LARGE, f"its text is more than the {limit} bytes a document may have"
    )


def refuse_other_kinds(order: Order, mark: bytes, kind: str) -> None:
    """Refuse a file that does not open like its kind, and say what it is instead, if that is plain.

    Raises:
        InvalidDocument: It is empty, is plain text, or lacks the mark.
    """
    with order.path.open("rb") as file:
        start = file.read(_START_BYTES)
    if not start:
        raise InvalidDocument(Reason.NO_TEXT, "it is empty: it has 0 bytes")
    if mark in start:
        return
    problem = f"it is no {kind} file, whatever its name says"
    if _is_text(start):
        problem += ": it holds plain text; name it .txt, and it is read as that"
    raise InvalidDocument(Reason.EXTRACTION, problem)


def _is_text(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # its last character may be cut off
    except UnicodeDecodeError:
        return False
    return b"\0" not in start
