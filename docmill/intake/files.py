"""Documents from files, folders and globs.

A file's name says how it is read: text as it is, each line of JSON Lines, each row of a table, the
text of PDF, Word and HTML files. Any other file named outright is one document, its bytes as they
are. Files are read one at a time, when their turn comes. Reading can be confined to a folder,
whatever is named and wherever links lead. May import docmill.errors.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docmill.errors import IntakeError, InvalidDocument, Reason
from docmill.intake.base import MAX_DOCUMENT_BYTES, Document, Item, Refusal, id_problem
from docmill.intake.compressed import open_bytes
from docmill.intake.extraction import Extraction
from docmill.intake.formats import EXTRACTED, lacking, missing_extra
from docmill.intake.jsonl import holds_results, read_jsonl
from docmill.intake.paths import Found, OnSkipped, Paths, Roots, is_inside
from docmill.intake.tables import Columns, Table, check_separator, decoded


def read(
    paths: Paths,
    *,
    encoding: str = "utf-8",
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
    inside: Path | None = None,
    text_column: str | None = None,
    id_column: str | None = None,
    separator: str | None = None,
    on_skipped: OnSkipped | None = None,
    extract: bool | Callable[[str], bool] = True,
    extraction: Extraction | None = None,
) -> Iterator[Item]:
    """Yield the documents in files, folders and globs.

    What is named is looked up at once, so that a missing file, column or package is known before
    anything is queued.

    Args:
        paths: One path or glob, or several.
        encoding: Of text files, tables and HTML; JSON Lines are UTF-8 always.
        max_document_bytes: Larger texts are refused without being read.
        inside: Where relative paths start; nothing outside of this folder is read, and a document
            whose link leads there is refused.
        text_column: The column of tables that holds the text; by default `text`, or the only one.
        id_column: The column of tables that holds the id; by default `custom_id` or `id`, if there.
        separator: The character between the columns of tables; by default the comma or, where the
            header has those alone, the semicolon, and the tab in .tsv.
        on_skipped: Told the name of each file that a folder or glob passes over because its kind is
            not read, in its turn; `Skipped.add` counts them.
        extract: Whether to read PDF, Word and HTML files, which takes time: all, none, or told by
            the custom id. The documents of the others come with an empty text.
        extraction: What reads those files, for callers that read often; by default one is started
            for the first of them and ended after the last.

    Raises:
        IntakeError: A path does not exist or leads outside, a folder cannot be read, nothing was
            named, the separator is none, a table has no such column or seems to have another
            separator, or packages are missing.
    """
    try:
        "".encode(encoding)
    except LookupError as error:
        raise IntakeError(f"encoding {encoding!r} is not known; try utf-8 or cp1252") from error
    if separator is not None:
        check_separator(separator)
    roots = Roots(paths, inside)
    columns = Columns(text_column, id_column, separator)
    reader = _Reader(roots.base, encoding, columns, max_document_bytes, extract)
    _refuse_what_cannot_be_extracted(roots)
    for found in roots.named_files():
        reader.refuse_bad_table(found)
    return reader.items(roots.files(on_skipped or (lambda _: None)), extraction)


def _refuse_what_cannot_be_extracted(roots: Roots) -> None:
    """Look whether a package is missing for any of the files; only then at all their names."""
    lacks = {kind: packages for kind in EXTRACTED if (packages := lacking(kind))}
    if not lacks:
        return
    for found in roots.files():
        if found.form and found.form.kind in lacks:
            raise missing_extra(found.name, lacks[found.form.kind])


@dataclass(frozen=True, slots=True)
class _Reader:
    """How the files of one reading are read."""

    base: Path | None
    encoding: str
    columns: Columns
    max_document_bytes: int
    extract: bool | Callable[[str], bool]

    def items(self, files: Iterator[Found], given: Extraction | None) -> Iterator[Item]:
        """Yield what the files hold; a file that cannot be read is refused alone."""
        with contextlib.nullcontext(given) if given else Extraction() as extraction:
            for found in files:
                yield from self._file(found, extraction)

    def refuse_bad_table(self, found: Found) -> None:
        """Refuse a table without the column at once; other troubles are told in their turn.

        Raises:
            IntakeError: Its header does not say where the text is.
        """
        if found.form is None or found.form.kind != "table":
            return
        try:
            with open_bytes(found.path, found.form) as file, decoded(file, self.encoding) as text:
                self._table(found, text)
        except OSError:
            return
        except InvalidDocument as error:
            if error.reason == Reason.BAD_REQUEST:
                raise IntakeError(f"{found.name}: {error.message}") from error

    def _file(self, found: Found, extraction: Extraction) -> Iterator[Item]:
        source = {"file": found.name}
        try:
            self._refuse_unsafe(found.path)
            yield from self._read(found, extraction)
        except InvalidDocument as error:
            custom_id = found.name[:200] if id_problem(found.name) else found.name
            yield Refusal(custom_id, error.reason, f"{found.name}: {error.message}", source)
        except OSError as error:
            message = f"{found.name}: it cannot be read: {error.strerror}"
            yield Refusal(found.name, Reason.UNREADABLE, message, source)

    def _refuse_unsafe(self, path: Path) -> None:
        if not is_inside(path, self.base):
            problem = "it leads out of the folder that may be read"
            raise InvalidDocument(Reason.UNREADABLE, problem)
        if self.base is not None and path.exists() and not path.is_file():
            # a pipe would be waited for without an end
            raise InvalidDocument(Reason.UNREADABLE, "it is no file")

    def _read(self, found: Found, extraction: Extraction) -> Iterator[Item]:
        kind = found.form.kind if found.form else "text"
        if kind == "lines":
            if not found.is_named and holds_results(found.path):
                return  # an output beside its documents
            yield from read_jsonl(
                found.path, name=found.name, max_document_bytes=self.max_document_bytes
            )
            return
        if kind == "table":
            with open_bytes(found.path, found.form) as file, decoded(file, self.encoding) as text:
                yield from self._table(found, text).items()
            return
        problem = id_problem(found.name)
        if problem:
            raise InvalidDocument(Reason.BAD_REQUEST, problem)
        if found.form and found.form.is_extracted:
            yield self._extracted(found, kind, extraction)
        else:
            data = self._text(found)
            yield Document(found.name, data, self.encoding, source={"file": found.name})

    def _table(self, found: Found, text: io.TextIOWrapper) -> Table:
        return Table(
            text,
            name=found.name,
            columns=self.columns,
            is_tabbed=found.form is not None and found.form.suffix == ".tsv",
            max_document_bytes=self.max_document_bytes,
        )

    def _text(self, found: Found) -> bytes:
        limit = self.max_document_bytes
        if found.form is None or found.form.compression is None:
            size = found.path.stat().st_size
            if size > limit:
                problem = f"{size} bytes are more than the {limit} a document may have"
                raise InvalidDocument(Reason.TOO_LARGE, problem)
        with open_bytes(found.path, found.form) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            problem = f"unpacked, it is more than the {limit} bytes a document may have"
            raise InvalidDocument(Reason.TOO_LARGE, problem)
        return data

    def _extracted(self, found: Found, kind: str, extraction: Extraction) -> Document:
        source = {"file": found.name, "format": kind}
        if not (self.extract(found.name) if callable(self.extract) else self.extract):
            return Document(found.name, "", source=source)
        text, about = extraction.read(
            found.path,
            kind,
            encoding=self.encoding,
            max_document_bytes=self.max_document_bytes,
        )
        return Document(found.name, text, source={**source, **about})
