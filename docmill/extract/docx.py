"""Word files: text as it would be printed with all changes accepted, as Markdown by way of HTML.

May import mammoth.
"""

import zipfile
from xml.etree import ElementTree

import mammoth

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import MAX_TITLE_LEN, Extract, Order, refuse_other_kinds
from docmill.extract.html import to_markdown

_PICTURES = "word/media/"
_CORE = "docProps/core.xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
#: What opens an OLE container, which is what Word 97 files and locked files are.
_OLE = b"\xd0\xcf\x11\xe0"


def extract_docx(order: Order) -> Extract:
    """Return a Word file as Markdown: headings, lists, tables, footnotes.

    Raises:
        InvalidDocument: It is no Word file, is locked, or unpacks to too much.
    """
    _refuse_old_files(order)
    refuse_other_kinds(order, b"PK\x03\x04", "Word")
    with order.path.open("rb") as file, zipfile.ZipFile(file) as archive:
        _refuse_bombs(archive, order.max_file_bytes)
        title = _title_of(archive)
        has_pictures = any(name.startswith(_PICTURES) for name in archive.namelist())
        file.seek(0)
        page = mammoth.convert_to_html(
            file, convert_image=_no_image, include_embedded_style_map=False
        ).value
    text = to_markdown(page, order.max_text_bytes)
    if not text.strip():
        problem = "it holds no text"
        if has_pictures:
            problem += "; if its pictures do, save it as a PDF and recognise that (ocrmypdf does)"
        raise InvalidDocument(Reason.NO_TEXT, problem)
    return Extract(text, {"title": title})


_no_image = mammoth.images.img_element(lambda _: {})


def _refuse_old_files(order: Order) -> None:
    with order.path.open("rb") as file:
        start = file.read(len(_OLE))
    if start == _OLE:
        problem = "it is a Word 97 file or locked with a password; save it as .docx without one"
        raise InvalidDocument(Reason.EXTRACTION, problem)


def _refuse_bombs(archive: zipfile.ZipFile, limit: int) -> None:
    """Refuse what its own headers say is too large; reading never gives more than they say."""
    parts = (part for part in archive.infolist() if not part.filename.startswith(_PICTURES))
    size = sum(part.file_size for part in parts)
    if size > limit:
        raise InvalidDocument(
            Reason.EXTRACTION, f"it unpacks to {size} bytes, more than the {limit} it may"
        )


def _title_of(archive: zipfile.ZipFile) -> str | None:
    if _CORE not in archive.namelist():
        return None
    found = ElementTree.fromstring(archive.read(_CORE)).findtext(_TITLE)  # noqa: S314 # limits hold
    return (found or "").strip()[:MAX_TITLE_LEN] or None
