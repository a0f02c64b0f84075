"""What intake hands over: a document, or the reason why there is none.

May import docmill.errors.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from docmill.errors import Reason

#: Documents above this are refused before they reach Redis; the service has the same default.
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024

#: What a document may ask for itself, instead of what its job asks; docmill.request checks it.
OPTIONS = (
    "combine_prompt",
    "dedup",
    "max_document_tokens",
    "max_tokens",
    "messages",
    "model",
    "near_threshold",
    "prompt",
    "rules",
    "seed",
    "stop",
    "temperature",
    "top_p",
    "truncate",
)

_KNOWN = frozenset({*OPTIONS, "custom_id", "id", "text"})
#: Of a key that is taken for a misspelt option: its length, and how like the option's name it is.
_MIN_LIKE_LEN, _MAX_LIKE_LEN = 4, 40
_LIKENESS = 0.8

#: Longest custom id, in bytes of UTF-8.
MAX_ID_BYTES = 512


@dataclass(frozen=True, slots=True)
class Document:
    """One text to be answered.

    Args:
        custom_id: The caller's name for it, unique in its job.
        text: The text, or its bytes as they are on disk.
        encoding: Of the bytes, if `text` is bytes.
        options: What this document asks instead of its job: prompt, messages, max_tokens, ….
        source: Where it came from, handed back with its result.
        ignored: Keys that stood beside these and mean nothing, but read like an option, and which.
    """

    custom_id: str
    text: str | bytes
    encoding: str = "utf-8"
    options: Mapping[str, Any] | None = None
    source: Mapping[str, Any] | None = None
    ignored: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that cannot be used; it becomes an error record and its neighbours run."""

    custom_id: str
    code: Reason
    message: str
    source: Mapping[str, Any] | None = None

    @property
    def line(self) -> int | None:
        """The 1-based line in the source file, if it was a line."""
        return (self.source or {}).get("line")


Item = Document | Refusal


def ignored_in(fields: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the keys that read like an option's name, and which option is likely meant.

    Data sets have keys of their own, so such a key is no reason to refuse a document.
    """
    found = {key: meant for key in fields if key not in _KNOWN and (meant := _option_like(key))}
    return {key: meant for key, meant in found.items() if meant not in fields} or None


@lru_cache(maxsize=1024)
def _option_like(key: str) -> str | None:
    if not _MIN_LIKE_LEN <= len(key) <= _MAX_LIKE_LEN:
        return None
    name = key.casefold().replace("-", "_")
    close = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=_LIKENESS)
    begun = [option for option in OPTIONS if option.startswith(name)]
    # four letters are the beginning of too many words
    return next(iter(close or begun[: len(name) > _MIN_LIKE_LEN]), None)


def position_of(source: Mapping[str, Any] | None, number: int) -> str:
    """Say where an item stands: `file:line`, `file`, or `document 3` (1-based)."""
    if not source or "file" not in source:
        return f"document {number}"
    line = source.get("line")
    return f"{source['file']}:{line}" if line else str(source["file"])


def id_problem(custom_id: object) -> str | None:
    """Say why this cannot be a custom id, or return None."""
    if not isinstance(custom_id, str):
        return f"custom_id must be text, got {type(custom_id).__name__}"
    if not custom_id:
        return "custom_id is empty"
    try:
        size = len(custom_id.encode())
    except UnicodeEncodeError:
        return f"custom_id {custom_id!a:.80} holds half a surrogate pair"
    if size > MAX_ID_BYTES:
        return f"custom_id of {size} bytes is longer than {MAX_ID_BYTES}"
    return None
