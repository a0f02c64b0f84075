"""Which formats are read, told by a file's name alone.

May import docmill.errors.
"""

import importlib.util
import sys
from dataclasses import dataclass

from docmill.errors import IntakeError

#: Suffixes, and what stands behind each.
SUFFIXES = {
    ".csv": "table",
    ".docx": "docx",
    ".htm": "html",
    ".html": "html",
    ".jsonl": "lines",
    ".md": "text",
    ".ndjson": "lines",
    ".pdf": "pdf",
    ".tsv": "table",
    ".txt": "text",
}

#: What may stand after the suffix of a file that is read as a stream.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}

_STREAMED = ("lines", "table", "text")

#: The packages that extraction needs, by format; all are in the extra `documents`.
_PACKAGES = {
    "docx": ("mammoth", "html_to_markdown"),
    "html": ("html_to_markdown",),
    "pdf": ("pypdfium2",),
}

#: Kinds in which a library has to find the text.
EXTRACTED = tuple(_PACKAGES)


@dataclass(frozen=True, slots=True)
class Format:
    """What a file holds: `kind` is a value of `SUFFIXES`, `compression` one of `COMPRESSIONS`."""

    kind: str
    suffix: str
    compression: str | None = None

    @property
    def is_extracted(self) -> bool:
        """Whether a library has to find the text in it."""
        return self.kind in EXTRACTED


def format_of(name: str) -> Format | None:
    """Return a file's format; None for one that is not read unless it is named outright."""
    stem, outer = _split(name.lower())
    compression = COMPRESSIONS.get(outer)
    suffix = _split(stem)[1] if compression else outer
    kind = SUFFIXES.get(suffix)
    if kind is None or (compression and kind not in _STREAMED):
        return None
    return Format(kind, suffix, compression)


def _split(name: str) -> tuple[str, str]:
    stem, dot, suffix = name.rpartition(".")
    return stem, dot + suffix


def lacking(kind: str) -> list[str]:
    """Return the packages that are not installed, of those that a kind of file needs."""
    return [name for name in _PACKAGES[kind] if importlib.util.find_spec(name) is None]


def missing_extra(name: str, packages: list[str]) -> IntakeError:
    """Return the error for a file that cannot be read without the extra."""
    return IntakeError(
        f"{name} cannot be read without packages that are not installed ({', '.join(packages)}): "
        f"run {sys.executable} -m pip install 'docmill[documents]'"
    )
