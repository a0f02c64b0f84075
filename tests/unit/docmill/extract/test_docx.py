"""Word files as Markdown."""

import io
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


def with_picture(data: bytes) -> bytes:
    """Return the same Word file with a picture in it."""
    file = io.BytesIO(data)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("word/media/image1.png", b"picture")
    return file.getvalue()


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


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (docx("<w:p/>"), "it holds no text"),
        (
            with_picture(docx("<w:p/>")),
            "it holds no text; if its pictures do, save it as a PDF and recognise that (ocrmypdf "
            "does)",
        ),
        (b"", "it is empty: it has 0 bytes"),
    ],
)
def test_a_file_without_text_is_said_to_have_none(tmp_path: Path, data: bytes, words: str) -> None:
    """A document of pictures is told from an empty one."""
    with pytest.raises(InvalidDocument) as error:
        extract(tmp_path / "a.docx", data)

    assert (Reason.NO_TEXT, words) == (error.value.reason, error.value.message)


def test_old_and_locked_files_are_told_apart(tmp_path: Path) -> None:
    """Both are containers that are no ZIP; the remedy is named."""
    with pytest.raises(InvalidDocument, match="Word 97 file or locked with a password; save it as"):
        extract(tmp_path / "a.docx", b"\xd0\xcf\x11\xe0" + bytes(600))


def test_a_file_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    """Its own list of contents says so."""
    with pytest.raises(InvalidDocument, match=r"it unpacks to \d+ bytes, more than the 100000"):
        extract(tmp_path / "a.docx", docx("<w:p/>" * 20_000), max_file_bytes=100_000)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    """Plain text under the name of a Word file is told to be text."""
    with pytest.raises(
        InvalidDocument, match=r"no Word file, .* it holds plain text; name it \.txt"
    ):
        extract(tmp_path / "a.docx", b"hello")


def test_what_a_library_raises_on_a_broken_file_is_not_hidden(tmp_path: Path) -> None:
    """The process words it; nothing here turns it into a text."""
    with pytest.raises(zipfile.BadZipFile):
        extract(tmp_path / "a.docx", docx(paragraph("text"))[:200])
