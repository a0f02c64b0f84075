"""HTML as Markdown: what a reader sees, with headings, lists, tables and code as such.

Scripts, styles, hidden elements, pictures and the targets of links are left out. The encoding is
the byte-order mark's, else the one the caller declared, else the one the page declares. May import
html_to_markdown.
"""

import codecs
import html
import re

import html_to_markdown as markdown

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import MAX_TITLE_LEN, Extract, Order, too_much_text

_OPTIONS = markdown.ConversionOptions(
    strip_tags=["a", "iframe"],  # their text stays; addresses cost more tokens than they tell
    skip_images=True,
    compact_tables=True,  # padding for looks would be paid in tokens
    extract_metadata=False,
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}["']?([\w.:-]{1,40})""", re.I)
_TITLE = re.compile(r"<title[^>]{0,99}>([^<]{1,9999})</", re.I)
#: How far into a page its title is looked for.
_TITLE_LEN = 64 * 1024
#: Where a browser looks for the encoding.
_HEAD_BYTES = 1024
#: What pages that declare the left mean, by the HTML standard; UTF-16 could not be declared so.
_MEANT = {"iso8859-1": "cp1252", "ascii": "cp1252"} | dict.fromkeys(
    ("utf-16", "utf-16-le", "utf-16-be"), "utf-8"
)


def extract_html(order: Order) -> Extract:
    """Return a page as Markdown.

    Raises:
        InvalidDocument: It is not in its encoding, is nested too deeply, or too long.
    """
    page = decode(order.path.read_bytes(), order.encoding)
    text = to_markdown(page, order.max_text_bytes)
    return Extract(text, {"title": title_of(page)})


def to_markdown(page: str, max_bytes: int) -> str:
    """Render HTML; what it cannot render whole it refuses.

    Raises:
        InvalidDocument: It is nested too deeply, breaks the renderer, or is too long.
    """
    done = markdown.convert(page, _OPTIONS)
    if done.warnings:
        raise InvalidDocument(
            Reason.EXTRACTION, f"it cannot be rendered whole: {done.warnings[0].message}"
        )
    text = (done.content or "").replace("\N{SOFT HYPHEN}", "")
    if len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise too_much_text(max_bytes)
    return text


def decode(data: bytes, declared: str) -> str:
    """Turn a page's bytes into text.

    Raises:
        InvalidDocument: They are not in the encoding, or nobody knows it.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data[len(mark) :], encoding)
    found = _DECLARED.search(data[:_HEAD_BYTES])
    if found and codecs.lookup(declared).name == "utf-8":
        declared = _meant(found[1].decode("ascii"))
    return _decoded(data, declared)


def _meant(declared: str) -> str:
    try:
        name = codecs.lookup(declared).name
    except LookupError as error:
        problem = f"it declares an encoding that is not known, {declared!r}"
        raise InvalidDocument(Reason.ENCODING, problem) from error
    return _MEANT.get(name, name)


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"it is not valid {encoding} at byte offset {error.start}"
        raise InvalidDocument(Reason.ENCODING, problem) from error
    except LookupError as error:  # a codec, but of something else than text
        problem = f"it declares {encoding!r}, which is no encoding of text"
        raise InvalidDocument(Reason.ENCODING, problem) from error


def title_of(page: str) -> str | None:
    """Return what stands in the first title element, if anything."""
    found = _TITLE.search(page, 0, _TITLE_LEN)
    return (found and " ".join(html.unescape(found[1]).split())[:MAX_TITLE_LEN]) or None
