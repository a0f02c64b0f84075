"""Documents from Python values: whatever a caller has in a list or generator.

May import docmill.errors.
"""

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from docmill.errors import IntakeError, Reason
from docmill.intake.base import OPTIONS, Document, Item, Refusal, id_problem
from docmill.intake.extraction import Extraction
from docmill.intake.files import read
from docmill.intake.openai_batch import UnsupportedRequest, parse_request

#: How many items each level of a caller's own source may have, and how many levels: well inside of
#: what readers of the wire format take.
MAX_SOURCE_ITEMS = 10_000
MAX_SOURCE_LEVELS = 16


def items_of(documents: Any, max_document_bytes: int) -> Iterator[Item]:
    """Yield what `documents` holds as documents and refusals, one at a time.

    A path is read; a text on its own is refused, because iterating over it would make every letter
    a document.

    Raises:
        IntakeError: `documents` is a single text, or nothing that can be iterated over.
    """
    if isinstance(documents, PathLike):
        return read(documents, max_document_bytes=max_document_bytes)
    if isinstance(documents, str | bytes | Mapping | Document):
        raise IntakeError(
            "documents must be a list or another iterable, not a single "
            f"{type(documents).__name__}; put it into a list, or use docmill.read(path)"
        )
    if not isinstance(documents, Iterable):
        raise IntakeError(f"documents must be iterable, got {type(documents).__name__}")
    return _items(documents, max_document_bytes)


def _items(documents: Iterable[Any], max_document_bytes: int) -> Iterator[Item]:
    with Extraction() as extraction:
        for number, value in enumerate(documents, start=1):
            if isinstance(value, PathLike):
                yield from read(value, max_document_bytes=max_document_bytes, extraction=extraction)
            else:
                yield item_of(value, number)


def item_of(value: Any, number: int) -> Item:
    """Turn one value into a document; `number` (1-based) names it if nothing else does."""
    if isinstance(value, str | bytes):
        return Document(f"document-{number}", value)
    if isinstance(value, Document | Refusal):
        problem = id_problem(value.custom_id) or _field_problem(value)
        return _refusal(number, problem) if problem else value
    if isinstance(value, tuple | list) and len(value) == 2:
        return _checked(value[0], value[1], None, number)
    if isinstance(value, Mapping):
        return _from_mapping(value, number)
    return _refusal(number, f"{type(value).__name__} cannot be a document")


def _field_problem(item: Item) -> str | None:
    """Say which field of a caller's own record has a type that it must not have."""
    source: Any = item.source
    text: Any = item.text if isinstance(item, Document) else ""
    encoding: Any = item.encoding if isinstance(item, Document) else ""
    if source is not None and not (isinstance(source, Mapping) and _is_plain(source)):
        return "its source must be a mapping of what JSON knows, and not deeply nested"
    if not isinstance(text, str | bytes):
        return f"its text must be str or bytes, got {type(text).__name__}"
    return None if isinstance(encoding, str) else "its encoding must be a name"


def _is_plain(value: Any, levels: int = MAX_SOURCE_LEVELS) -> bool:
    """Tell whether every reader of the wire format can read this."""
    if value is None or isinstance(value, str | float | bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if not isinstance(value, Mapping | list | tuple) or not levels or len(value) > MAX_SOURCE_ITEMS:
        return False
    if not isinstance(value, Mapping):
        return all(_is_plain(item, levels - 1) for item in value)
    return all(isinstance(key, str) and _is_plain(value[key], levels - 1) for key in value)


def _from_mapping(fields: Mapping[str, Any], number: int) -> Item:
    custom_id = fields.get("custom_id", fields.get("id", f"document-{number}"))
    if isinstance(custom_id, int) and not isinstance(custom_id, bool):
        custom_id = str(custom_id)
    if "body" in fields:
        try:
            text, options = parse_request(fields)
        except UnsupportedRequest as error:
            problem = id_problem(custom_id)
            return _refusal(number, str(error), None if problem else custom_id)
        return _checked(custom_id, text, options, number)
    own = {name: fields[name] for name in OPTIONS if fields.get(name) is not None}
    return _checked(custom_id, fields.get("text"), own or None, number)


def _checked(custom_id: Any, text: Any, options: dict[str, Any] | None, number: int) -> Item:
    problem = id_problem(custom_id)
    if problem:
        return _refusal(number, problem)
    if not isinstance(text, str | bytes):
        return _refusal(
            number, f"its text must be str or bytes, got {type(text).__name__}", custom_id
        )
    return Document(custom_id, text, options=options)


def _refusal(number: int, problem: str, custom_id: str | None = None) -> Refusal:
    name = custom_id or f"document-{number}"
    return Refusal(name, Reason.BAD_REQUEST, f"document {number}: {problem}")
