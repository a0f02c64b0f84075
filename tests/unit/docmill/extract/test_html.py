"""HTML files as Markdown."""

import codecs
from pathlib import Path

import pytest

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import Extract, Order
from docmill.extract.html import decode, extract_html, title_of

PAGE = """<!doctype html><html><head><title>A &amp;
 B</title><style>p{}</style><script>track()</script></head><body>
<h1>Head</h1><p>First <b>bold</b> <a href="https://example.org/?q=1">link</a>.</p>
<p hidden>ignore the above</p><p style="display:none">and this</p>
<ul><li>one</li><li>two</li></ul>
<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>22</td></tr></table>
<pre><code>if x:
    y()</code></pre><img src="data:image/png;base64,AAAA" alt="picture"></body></html>"""


def extract(path: Path, page: bytes, max_text_bytes: int = 10_000) -> Extract:
    """Extract from a file with this content."""
    path.write_bytes(page)
    return extract_html(Order(path, "utf-8", max_text_bytes, 1_000_000))


def test_a_page_becomes_what_a_reader_sees(tmp_path: Path) -> None:
    """Structure stays; scripts, styles, hidden text, pictures and addresses do not."""
    expected = (
        "# Head\n\nFirst **bold** link.\n\n- one\n- two\n\n"
        "| A | B |\n| --- | --- |\n| 1 | 22 |\n\n```\nif x:\n    y()\n```\n"
    )

    assert Extract(expected, {"title": "A & B"}) == extract(tmp_path / "a.html", PAGE.encode())


@pytest.mark.parametrize(
    ("data", "declared"),
    [
        ("é€".encode(), "utf-8"),
        (codecs.BOM_UTF8 + "é€".encode(), "cp1252"),
        (codecs.BOM_UTF16_LE + "é€".encode("utf-16-le"), "utf-8"),
        (codecs.BOM_UTF16_BE + "é€".encode("utf-16-be"), "utf-8"),
        ("é€".encode("cp1252"), "cp1252"),
        ('<meta charset="windows-1252">é€'.encode("cp1252"), "utf-8"),
        ("<META http-equiv=x content='text/html; charset=iso-8859-1'>é€".encode("cp1252"), "utf-8"),
        ('<meta charset="utf-16">é€'.encode(), "utf-8"),
        ('<meta charset="koi8-r">é€'.encode(), "utf-8-sig"),
    ],
)
def test_the_encoding_is_what_is_declared(data: bytes, declared: str) -> None:
    """The mark comes first, then the caller's word, then the page's own as browsers read it."""
    assert decode(data, declared).endswith("é€")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"ab\xe9", "it is not valid utf-8 at byte offset 2"),
        (b"<meta charset=klingon>", "it declares an encoding that is not known, 'klingon'"),
        (b"<meta charset=hex>", "it declares 'hex', which is no encoding of text"),
    ],
)
def test_an_encoding_is_never_guessed(data: bytes, words: str) -> None:
    """What is not in its encoding is refused, with the place."""
    with pytest.raises(InvalidDocument, match=words) as error:
        decode(data, "utf-8")

    assert Reason.ENCODING == error.value.reason


def test_a_page_that_cannot_be_shown_whole_is_refused(tmp_path: Path) -> None:
    """Nothing is left out in silence."""
    with pytest.raises(InvalidDocument, match=r"cannot be rendered whole: .*depth limit"):
        extract(tmp_path / "a.html", b"<div>" * 3000 + b"x")


def test_the_text_may_not_be_longer_than_a_document(tmp_path: Path) -> None:
    """However large the file may be."""
    with pytest.raises(InvalidDocument, match="more than the 20 bytes") as error:
        extract(tmp_path / "a.html", b"<p>" + b"x" * 21, max_text_bytes=20)

    assert Reason.TOO_LARGE == error.value.reason


def test_a_title_may_stand_behind_anything() -> None:
    """Letters that grow when they become small do not shift it."""
    assert "T &" == title_of("İ" * 9 + "<TITLE lang=tr>\n T &amp;</TITLE>")


@pytest.mark.parametrize("page", ["", "<title>", "<title>x", "<title></title>", "<p>x</p>"])
def test_a_page_without_a_title_has_none(page: str) -> None:
    """An unfinished or empty one is none."""
    assert title_of(page) is None
