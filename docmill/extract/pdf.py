"""PDF: the text layer, page by page. Nothing is recognised in pictures.

May import pypdfium2.
"""

from collections.abc import Iterator

import pypdfium2

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import (
    MAX_TITLE_LEN,
    Extract,
    Order,
    refuse_other_kinds,
    too_much_text,
)

#: How pdfium marks a hyphen at a line's end that the word goes on without.
_SOFT_HYPHENS = dict.fromkeys(map(ord, "\x02\ufffe"))


def extract_pdf(order: Order) -> Extract:
    """Return the text of all pages, a blank line between two.

    Raises:
        InvalidDocument: It is broken, locked, too long, or has no text layer.
    """
    refuse_other_kinds(order, b"%PDF-", "PDF")
    with _opened(order) as document:
        num_pages = len(document)
        texts = list(_pages(document, order.max_text_bytes))
        title = _title_of(document)
    num_empty = sum(not text for text in texts)
    if num_empty == num_pages:
        raise InvalidDocument(
            Reason.NO_TEXT,
            f"{_none_of(num_pages)} text; if it is a scan, recognise it first (ocrmypdf does) and "
            "submit what comes of it",
        )
    about = {
        "title": title,
        "pages": [1, num_pages],
        "num_pages_without_text": num_empty or None,
    }
    return Extract("\n\n".join(filter(None, texts)) + "\n", about)


def _none_of(num_pages: int) -> str:
    return "its only page has no" if num_pages == 1 else f"none of its {num_pages} pages has"


def _opened(order: Order) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(order.path)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            problem = "it is locked with a password; save it without one"
        else:
            problem = "it is a broken PDF; perhaps a reader can open it and save it anew"
        raise InvalidDocument(Reason.EXTRACTION, problem) from error


def _title_of(document: pypdfium2.PdfDocument) -> str | None:
    try:
        title = str(document.get_metadata_value("Title"))
    except UnicodeDecodeError:  # half a surrogate pair; the text does not depend on it
        return None
    return title.strip()[:MAX_TITLE_LEN] or None


def _pages(document: pypdfium2.PdfDocument, max_bytes: int) -> Iterator[str]:
    left = max_bytes
    for number in range(len(document)):
        text = _page_text(document, number)
        left -= len(text.encode())
        if left < 0:
            raise too_much_text(max_bytes)
        yield text


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    try:
        page = document[number]
        text_page = page.get_textpage()
        try:
            found = str(text_page.get_text_bounded())
        finally:
            text_page.close()
            page.close()
    except pypdfium2.PdfiumError as error:
        raise InvalidDocument(
            Reason.EXTRACTION, f"its page {number + 1} of {len(document)} cannot be read"
        ) from error
    lines = found.translate(_SOFT_HYPHENS).replace("\r\n", "\n").replace("\r", "\n")
    return lines.strip()
