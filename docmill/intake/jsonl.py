"""JSON Lines in: one document a line, in docmill's plain form or OpenAI's Batch form.

A plain line is `{"id": …, "text": …}` (`custom_id` does as well), with its own prompt, max_tokens …
if it likes; other keys are ignored, and noted where they read like an option. Lines are split at
line feeds and nowhere else. A line that cannot be used is refused alone: not JSON (NaN and
infinities are not), not an object, a key given twice (which one counts would be a guess), invalid
UTF-8, too long. Blank lines are skipped. Memory is bounded by the longest line allowed, whatever
the file holds. May import docmill.errors.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from docmill.errors import Reason
from docmill.intake.base import (
    MAX_DOCUMENT_BYTES,
    OPTIONS,
    Document,
    Item,
    Refusal,
    id_problem,
    ignored_in,
)
from docmill.intake.compressed import open_bytes
from docmill.intake.formats import format_of
from docmill.intake.openai_batch import UnsupportedRequest, parse_request

_BOM = b"\xef\xbb\xbf"
_SKIP_BYTES = 1024 * 1024
#: The first keys of a result, in the order in which they are written.
_RESULT = re.compile(
    rb'\s*\{\s*"id":\s*"batch_req_[^"]*",\s*"custom_id":\s*"(?:[^"\\]|\\.)*",\s*"response":'
)
_LOOK_BYTES = 4096


class _BadLine(Exception):
    """The line cannot be used; the message says why."""


def holds_results(path: Path) -> bool:
    """Whether a file's first line is a result, of docmill or of an OpenAI Batch, and no document.

    Raises:
        OSError: The file cannot be read.
        InvalidDocument: It cannot be unpacked.
    """
    with open_bytes(path, format_of(path.name)) as file:
        return _RESULT.match(file.read(_LOOK_BYTES)) is not None


def read_jsonl(
    path: Path, *, name: str | None = None, max_document_bytes: int = MAX_DOCUMENT_BYTES
) -> Iterator[Item]:
    """Yield a file's documents and refusals in order; a .gz or .zst is unpacked on the way.

    Args:
        path: The file.
        name: What to call it in ids, sources and messages.
        max_document_bytes: The longest document; a line may be a little over three times that,
            since JSON may write a two-byte letter as an escape of six.

    Raises:
        OSError: The file cannot be read.
        InvalidDocument: The rest of it cannot be unpacked.
    """
    name = name or path.as_posix()
    max_line_bytes = 3 * max_document_bytes + 64 * 1024
    with open_bytes(path, format_of(path.name)) as file:
        for number, (line, size) in enumerate(_lines(file, max_line_bytes), start=1):
            source = {"file": name, "line": number}
            if line is None:
                message = (
                    f"{name}:{number}: {size} bytes are more than the {max_line_bytes} a "
                    "line may have"
                )
                yield Refusal(f"{name}:{number}", Reason.TOO_LARGE, message, source)
                continue
            data = line.removeprefix(_BOM) if number == 1 else line
            if data.strip(b" \t\r\n"):
                yield parse_line(data, source)


def _lines(file: BinaryIO, limit: int) -> Iterator[tuple[bytes | None, int]]:
    """Yield each line and its size; None instead of a line above the limit."""
    while line := file.readline(limit + 1):
        if len(line) <= limit or line.endswith(b"\n"):
            yield line, len(line)
            continue
        size = len(line)
        del line  # a line may be large: do not hold it while the rest is skipped
        while piece := file.readline(_SKIP_BYTES):
            size += len(piece)
            if piece.endswith(b"\n"):
                break
        yield None, size


def parse_line(line: bytes, source: dict[str, Any]) -> Item:
    """Turn one line into a document, or say why it is none."""
    custom_id = where = f"{source['file']}:{source['line']}"
    try:
        fields = _load(line)
        custom_id = _custom_id(fields)
        _refuse_surrogates(line, fields)
        return _document(custom_id, fields, source)
    except _BadLine as error:
        return Refusal(custom_id, Reason.BAD_LINE, f"{where}: {error}", source)
    except UnsupportedRequest as error:
        return Refusal(custom_id, Reason.BAD_REQUEST, f"{where}: {error}", source)


def _load(line: bytes) -> dict[str, Any]:
    try:
        fields = _DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        raise _BadLine(
            f"invalid UTF-8 at byte offset {error.start} (0x{line[error.start]:02x})"
        ) from error
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise _BadLine(f"not JSON: {what} at character {error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise _BadLine(f"not JSON that can be read: {error}") from error
    if not isinstance(fields, dict):
        raise _BadLine(f"expected a JSON object, got {_JSON_NAMES[type(fields)]}")
    return fields


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _BadLine(f"key {twice!a:.80} is given twice")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise _BadLine(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
_JSON_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


def _custom_id(fields: dict[str, Any]) -> str:
    given: Any = fields.get("custom_id", fields.get("id"))
    if given is None:
        raise _BadLine("custom_id (or id) is missing")
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)  # data sets often number their rows
    problem = id_problem(given)
    if problem:
        raise _BadLine(problem)
    return str(given)


def _document(custom_id: str, fields: dict[str, Any], source: dict[str, Any]) -> Document:
    if "body" in fields:
        document, options = parse_request(fields)
        return Document(custom_id, document, options=options, source=source)
    text = fields.get("text")
    if not isinstance(text, str):
        raise _BadLine(
            f"text must be a string, got {_JSON_NAMES.get(type(text), 'an object')}"
            if "text" in fields
            else "text is missing"
        )
    own = {name: fields[name] for name in OPTIONS if fields.get(name) is not None}
    ignored = ignored_in(fields)
    return Document(custom_id, text, options=own or None, source=source, ignored=ignored)


def _refuse_surrogates(line: bytes, fields: dict[str, Any]) -> None:
    r"""Refuse half a surrogate pair anywhere but in the document, which preprocessing judges.

    Only an escape can bring one in, so lines without `\ud…` are not looked at.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        return
    for name, value in fields.items():
        if name not in ("text", "body") and not _is_encodable([name, value]):
            raise _BadLine(f"{name!a:.80} holds half a surrogate pair")


def _is_encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
