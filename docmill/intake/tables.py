"""CSV and TSV in: a row is a document, one column its text.

The first row names the columns. The text is in the column that was chosen, else in `text`, else in
the only one; the id in the column that was chosen, else in `custom_id` or `id`, else it is made of
the row's number. Columns are separated by the character that was chosen, else by commas, or by
semicolons where the header has those alone; by tabs in .tsv. A header that seems to have another
separator is refused: its rows would become documents of garbage. A quoted field may hold line
breaks. A row that cannot be used is refused alone: a quote out of place, more or fewer fields than
the header, bytes that are not in the encoding, too long. Blank rows are skipped. Memory is bounded
by the longest row allowed. May import docmill.errors and docmill.marks.
"""

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from docmill.errors import IntakeError, InvalidDocument, Reason
from docmill.intake.base import Document, Item, Refusal, id_problem
from docmill.marks import MARK_BYTES, contradicted_by

#: What a row may hold beside its text, in characters.
_SPARE_LEN = 64 * 1024

_SKIP_LEN = 1024 * 1024
_MAX_NAMED = 20
#: What separates columns where it is not what the file's name says, the likeliest first.
_SEPARATORS = ("\t", ";", "|", ",")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns to take, by name, and what separates them; None: as the module says."""

    text: str | None = None
    custom_id: str | None = None
    separator: str | None = None


def check_separator(separator: str) -> None:
    """Refuse what cannot stand between columns.

    Raises:
        IntakeError: It is not one character, or one that means something else in a table.
    """
    if len(separator) != 1 or separator in '"\r\n\0':
        raise IntakeError(
            f"separator {separator!r} is not one character, or is a quote or line break"
        )


def decoded(file: io.BufferedReader, encoding: str) -> io.TextIOWrapper:
    """Decode what a table holds; a byte that cannot be is kept as half a surrogate pair.

    Raises:
        InvalidDocument: It opens with the byte-order mark of another encoding.
    """
    if marked := contradicted_by(file.peek(MARK_BYTES), encoding):
        problem = f"it opens with the mark of {marked} but was declared {encoding} (--encoding)"
        raise InvalidDocument(Reason.ENCODING, problem)
    name = codecs.lookup(encoding).name
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
            InvalidDocument: There is no header that says where the text is, or another separator.
        """
        self._name = name
        self._encoding = text.encoding.removesuffix("-sig")
        self._lines = _Lines(text, max_document_bytes + _SPARE_LEN)
        # the limit is the whole process', so it is only ever raised
        csv.field_size_limit(max(csv.field_size_limit(), self._lines.limit))
        try:
            self._rows = _rows(self._lines, columns.separator, is_tabbed)
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


def _rows(lines: _Lines, wanted: str | None, is_tabbed: bool) -> Iterator[list[str]]:
    """Return the rows as csv reads them, the header first.

    Raises:
        InvalidDocument: The header seems to have another separator.
    """
    first = next(line for line in lines if line.strip())
    delimiter = wanted or _likely_separator(first, "\t" if is_tabbed else ",")
    return csv.reader(chain([first], lines), delimiter=delimiter, strict=True)


def _likely_separator(first: str, usual: str) -> str:
    if _num_columns(first, usual) > 1:
        return usual
    likely = max(_SEPARATORS, key=lambda other: _num_columns(first, other))
    if _num_columns(first, likely) == 1:
        return usual
    if usual == "," and likely == ";":
        return ";"
    raise InvalidDocument(
        Reason.BAD_REQUEST,
        f"its first row has no {_shown(usual)} but {_shown(likely)}: if that separates the "
        f"columns, say --separator {_typed(likely)}, and if there is only one column, "
        f"--separator {_typed(usual)}",
    )


def _num_columns(line: str, separator: str) -> int:
    return len(next(csv.reader([line], delimiter=separator)))


def _shown(separator: str) -> str:
    return "tab" if separator == "\t" else repr(separator)


def _typed(separator: str) -> str:
    return "tab" if separator == "\t" else f"'{separator}'"


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
