"""Word files as Markdown."""

import zipfile
from pathlib import Path

import pytest

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import Extract, Order
from docmill.extract.docx import extract_docx
from tests.support.documents import docx, paragraph


def extract(path: Path, data: bytes, max_file_bytes: int = 1_000_000) -> Extract:
    """Extract from a file with this content."""
    path.write_bytes(data)
    return extract_docx(Order(path, "utf-8", 10_000, max_file_bytes))


def test_headings_paragraphs_and_tables_stay_what_they_are(tmp_path: Path) -> None:
    """As Markdown, with the file's title."""
    table = "".join(
        f"<w:tr>{''.join(f'<w:tc>{paragraph(cell)}</w:tc>' for cell in row)}</w:tr>"
        for row in (("A", "B"), ("1", "2"))
    )
    body = paragraph("Head", "Heading1") + paragraph("a < b & c") + f"<w:tbl>{table}</w:tbl>"

    assert Extract(
        "# Head\n\na < b & c\n\n| A | B |\n| --- | --- |\n| 1 | 2 |\n", {"title": "A Title"}
    ) == extract(tmp_path / "a.docx", docx(body, "A Title"))


def test_changes_count_as_accepted(tmp_path: Path) -> None:
    """What was inserted is text, also in a form's field; what was deleted is not."""
    body = (
        "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"
        f"<w:sdt><w:sdtContent>{paragraph('field')}</w:sdtContent></w:sdt>"
    )

    assert "new\n\nfield\n" == extract(tmp_path / "a.docx", docx(body)).text


def test_a_file_without_text_is_said_to_have_none(tmp_path: Path) -> None:
    """A document of pictures, for example."""
    with pytest.raises(InvalidDocument, match="it holds no text") as error:
        extract(tmp_path / "a.docx", docx("<w:p/>"))

    assert Reason.NO_TEXT == error.value.reason


def test_old_and_locked_files_are_told_apart(tmp_path: Path) -> None:
    """Both are containers that are no ZIP; the remedy is named."""
    with pytest.raises(InvalidDocument, match="Word 97 file or locked with a password; save it as"):
        extract(tmp_path / "a.docx", b"\xd0\xcf\x11\xe0" + bytes(600))


def test_a_file_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    """Its own list of contents says so."""
    with pytest.raises(InvalidDocument, match=r"it unpacks to \d+ bytes, more than the 100000"):
        extract(tmp_path / "a.docx", docx("<w:p/>" * 20_000), max_file_bytes=100_000)


def test_what_a_library_raises_on_a_broken_file_is_not_hidden(tmp_path: Path) -> None:
    """The process words it; nothing here turns it into a text."""
    with pytest.raises(zipfile.BadZipFile):
        extract(tmp_path / "a.docx", b"hello")
