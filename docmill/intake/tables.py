"""CSV and TSV in: a row is a document, one column its text.

The first row names the columns. The text is in the column that was chosen, else in `text`, else in
the only one; the id in the column that was chosen, else in `custom_id` or `id`, else it is made of
the row's number. Columns are separated by commas, or by semicolons where the header has those
alone; by tabs in .tsv. A quoted field may hold line breaks. A row that cannot be used is refused
alone: a quote out of place, more or fewer fields than the header, bytes that are not in the
encoding, too long. Blank rows are skipped. Memory is bounded by the longest row allowed. May import
docmill.errors.
"""

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from docmill.errors import InvalidDocument, Reason
from docmill.intake.base import Document, Item, Refusal, id_problem

#: What a row may hold beside its text, in characters.
_SPARE_LEN = 64 * 1024

_SKIP_LEN = 1024 * 1024
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns to take, by name; None: as the module says."""

    text: str | None = None
    custom_id: str | None = None


def decoded(file: io.BufferedReader, encoding: str) -> io.TextIOWrapper:
    """Decode what a table holds; a byte that cannot be is kept as half a surrogate pair.

    Raises:
        InvalidDocument: It opens with the mark of UTF-16, which was not declared.
    """
    name = codecs.lookup(encoding).name
    if file.peek(2)[:2] in _UTF16_MARKS and not name.startswith("utf-16"):
        problem = f"it opens with the mark of UTF-16 but was declared {encoding}"
        raise InvalidDocument(Reason.ENCODING, problem)
    name = "utf-8-sig" if name == "utf-8" else name
    return io.TextIOWrapper(file, name, errors="surrogateescape", newline="")


class _RowTooLong(Exception):
    """The row at hand is longer than a row may be."""


class Table:
    """A table whose header was read and understood."""

    def __init__(
        self,
        text: io.TextIOWrapper,
        *,
        name: str,
        columns: Columns,
        is_tabbed: bool,
        max_document_bytes: int,
    ) -> None:
        """Read the header.

        Args:
            text: What it holds, from `decoded`.
            name: What to call it in ids, sources and messages.
            columns: Which to take.
            is_tabbed: Whether tabs separate the columns.
            max_document_bytes: The longest text.

        Raises:
            InvalidDocument: There is no header that says where the text is.
        """
        self._name = name
        self._encoding = text.encoding.removesuffix("-sig")
        self._lines = _Lines(text, max_document_bytes + _SPARE_LEN)
        # the limit is the whole process', so it is only ever raised
        csv.field_size_limit(max(csv.field_size_limit(), self._lines.limit))
        try:
            self._rows = _rows(self._lines, is_tabbed)
            self._header = next(self._rows)
        except (StopIteration, csv.Error, UnicodeError, _RowTooLong) as error:
            problem = f"its first row cannot be read as the names of its columns{_said(error)}"
            raise InvalidDocument(Reason.BAD_REQUEST, problem) from error
        self._text_at = _text_column(self._header, columns.text)
        self._id_at = _id_column(self._header, columns.custom_id, self._text_at)

    def items(self) -> Iterator[Item]:
        """Yield the documents and refusals in order.

        Raises:
            InvalidDocument: The rest cannot be decoded.
        """
        number = 0
        while True:
            self._lines.start_row()
            line = self._lines.number + 1
            try:
                fields = next(self._rows, None)
            except (csv.Error, _RowTooLong) as error:
                number += 1
                yield self._unreadable(number, line, error)
                continue
            except UnicodeError as error:
                problem = f"it is not valid {self._encoding} after line {line - 1}"
                raise InvalidDocument(Reason.ENCODING, problem) from error
            if fields is None:
                return
            if fields:
                number += 1
                yield self._item(fields, number, line)

    def _unreadable(self, number: int, line: int, error: Exception) -> Refusal:
        if isinstance(error, _RowTooLong):
            size = self._lines.skip_row()
            problem = (
                f"the row's {size} characters are more than the {self._lines.limit} a row may "
                "have; is a quote not closed?"
            )
            return self._refusal(number, line, Reason.TOO_LARGE, problem)
        problem = f"a quote is out of place{_said(error)}"
        return self._refusal(number, line, Reason.BAD_LINE, problem)

    def _item(self, fields: list[str], number: int, line: int) -> Item:
        if len(fields) != len(self._header):
            problem = (
                f"the row has {len(fields)} fields, the header {len(self._header)}; is a "
                "separator or a line break not quoted?"
            )
            return self._refusal(number, line, Reason.BAD_LINE, problem)
        for at in (self._text_at, self._id_at):
            garbled = self._encoding_problem(fields, at)
            if garbled:
                return self._refusal(number, line, Reason.ENCODING, garbled)
        text = fields[self._text_at]
        if self._id_at is None:
            return Document(self._id(number), text, source=self._source(number, line))
        custom_id = fields[self._id_at]
        unusable = id_problem(custom_id)
        if unusable:
            return self._refusal(number, line, Reason.BAD_LINE, unusable)
        return Document(custom_id, text, source=self._source(number, line))

    def _encoding_problem(self, fields: list[str], at: int | None) -> str | None:
        if at is None:
            return None
        try:
            fields[at].encode()
        except UnicodeEncodeError as error:
            before = fields[at][: error.start].encode(self._encoding, "surrogateescape")
            return (
                f"column {self._header[at]!r} is not valid {self._encoding} at byte offset "
                f"{len(before)}"
            )
        return None

    def _refusal(self, number: int, line: int, code: Reason, problem: str) -> Refusal:
        message = f"{self._name}:{line}: {problem}"
        return Refusal(self._id(number), code, message, self._source(number, line))

    def _id(self, number: int) -> str:
        return f"{self._name}#{number}"

    def _source(self, number: int, line: int) -> dict[str, str | int]:
        return {"file": self._name, "line": line, "row": number}


class _Lines:
    """A text's lines as they stand in the file, counted; a row of too many is not held."""

    def __init__(self, text: io.TextIOWrapper, limit: int) -> None:
        self._text = text
        self.limit = limit
        self.number = 0
        self._row_len = 0
        self._num_quotes = 0
        self._last = "\n"

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._read(self.limit + 1)
        if not line:
            raise StopIteration
        if self._row_len > self.limit:
            raise _RowTooLong
        return line

    def start_row(self) -> None:
        """Count from here."""
        self._row_len = self._num_quotes = 0

    def skip_row(self) -> int:
        """Read on to the end of a row that is too long; return its length.

        Outside of a quoted field the number of quotes so far is even.
        """
        while not (self._last.endswith(("\n", "\r")) and self._num_quotes % 2 == 0):
            if not self._read(_SKIP_LEN):
                break
        return self._row_len

    def _read(self, limit: int) -> str:
        line = self._text.readline(limit)
        self._row_len += len(line)
        self._num_quotes += line.count('"')
        self.number += self._last.endswith(("\n", "\r")) and bool(line)
        self._last = line[-1:]
        return line


def _rows(lines: _Lines, is_tabbed: bool) -> Iterator[list[str]]:
    """Return the rows as csv reads them, the header first."""
    first = next(line for line in lines if line.strip())
    delimiter = "\t" if is_tabbed else ","
    if not is_tabbed and len(next(csv.reader([first]))) == 1 and ";" in first:
        delimiter = ";"
    return csv.reader(chain([first], lines), delimiter=delimiter, strict=True)


def _text_column(header: list[str], wanted: str | None) -> int:
    if wanted is None and len(header) == 1:
        return 0
    return _place(header, "text" if wanted is None else wanted)


def _id_column(header: list[str], wanted: str | None, text_at: int) -> int | None:
    if wanted is not None:
        return _place(header, wanted)
    named = [name for name in ("custom_id", "id") if name in header]
    at = _place(header, named[0]) if named else None
    return None if at == text_at else at


def _place(header: list[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    problem = f"column {name!r} stands twice" if name in header else f"there is no column {name!r}"
    names = ", ".join(map(repr, header[:_MAX_NAMED])) + ", …" * (len(header) > _MAX_NAMED)
    raise InvalidDocument(
        Reason.BAD_REQUEST, f"{problem}; choose one of {names} (text: --column, id: --id-column)"
    )


def _said(error: Exception) -> str:
    return f" ({error})" if str(error) else ""
