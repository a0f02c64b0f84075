"""What an extractor is given and what it hands back.

May import docmill.errors.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docmill.errors import InvalidDocument, Reason

#: Titles travel with every result; some are whole paragraphs.
MAX_TITLE_LEN = 500


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
