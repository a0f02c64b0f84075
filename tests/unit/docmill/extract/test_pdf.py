"""Text out of PDF files."""

from pathlib import Path

import pytest

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import Extract, Order
from docmill.extract.pdf import extract_pdf
from tests.support.cases import DATA
from tests.support.documents import pdf


def extract(path: Path, data: bytes, max_text_bytes: int = 10_000) -> Extract:
    """Extract from a file with this content."""
    path.write_bytes(data)
    return extract_pdf(Order(path, "utf-8", max_text_bytes, 1_000_000))


def refused(path: Path, data: bytes, max_text_bytes: int = 10_000) -> tuple[Reason, str]:
    """Return why a file with this content is refused."""
    with pytest.raises(InvalidDocument) as error:
        extract(path, data, max_text_bytes)
    return error.value.reason, error.value.message


def test_pages_become_paragraphs(tmp_path: Path) -> None:
    """In order, with the file's title, its pages, and how many of them have no text."""
    data = pdf(["Hello (you)\nline two", "", "Page 3"], title="A Title")

    assert Extract(
        "Hello (you)\nline two\n\nPage 3\n",
        {"title": "A Title", "pages": [1, 3], "num_pages_without_text": 1},
    ) == extract(tmp_path / "a.pdf", data)


def test_a_word_hyphenated_at_a_line_s_end_is_whole_again(tmp_path: Path) -> None:
    """What typesetting parted is one word, and a hyphen within a line stays."""
    text = extract(tmp_path / "a.pdf", pdf(["well-known infor-\nmation"])).text

    assert "well-known information\n" == text


def test_a_title_that_is_no_text_is_none(tmp_path: Path) -> None:
    """Half a surrogate pair in it does not cost the file."""
    about = extract(tmp_path / "a.pdf", pdf(["text"], title="\\376\\377\\330\\000")).about

    assert {"title": None, "pages": [1, 1], "num_pages_without_text": None} == about


def test_a_scan_is_said_to_be_one(tmp_path: Path) -> None:
    """A file without a text layer has a code of its own, and the remedy is named."""
    code, message = refused(tmp_path / "a.pdf", pdf(["", ""]))

    assert Reason.NO_TEXT == code
    assert "none of its 2 pages has text" in message
    assert "ocrmypdf" in message


def test_a_locked_file_is_said_to_be_locked(tmp_path: Path) -> None:
    """The remedy is named."""
    data = (DATA / "documents" / "locked.pdf").read_bytes()

    assert (Reason.EXTRACTION, "it is locked with a password; save it without one") == refused(
        tmp_path / "a.pdf", data
    )


def test_a_single_page_is_one(tmp_path: Path) -> None:
    """A scan of one page is told in the singular."""
    assert "its only page has no text" in refused(tmp_path / "a.pdf", pdf([""]))[1]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", Reason.NO_TEXT, "it is empty: it has 0 bytes"),
        (b"\x89PNG\r\n\0", Reason.EXTRACTION, "it is no PDF file, whatever its name says"),
        (b"\0\0text", Reason.EXTRACTION, "it is no PDF file, whatever its name says"),
        (
            pdf(["text"])[:150],
            Reason.EXTRACTION,
            "it is a broken PDF; perhaps a reader can open it and save it anew",
        ),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, data: bytes, code: Reason, words: str) -> None:
    """Whatever its bytes are; what is no PDF at all is told apart."""
    assert (code, words) == refused(tmp_path / "a.pdf", data)


@pytest.mark.parametrize("data", [b"hello", b"a" + "ü".encode() * 1000, b"ID\tText\r\n"])
def test_text_under_the_name_of_a_pdf_is_told_to_be_text(tmp_path: Path, data: bytes) -> None:
    """The remedy is another name."""
    code, message = refused(tmp_path / "a.pdf", data)

    assert Reason.EXTRACTION == code
    assert "it holds plain text; name it .txt" in message


def test_the_text_may_not_be_longer_than_a_document(tmp_path: Path) -> None:
    """However small the file is."""
    code, message = refused(tmp_path / "a.pdf", pdf(["x" * 60, "x" * 60]), max_text_bytes=100)

    assert (Reason.TOO_LARGE, "its text is more than the 100 bytes a document may have") == (
        code,
        message,
    )
