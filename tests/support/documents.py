"""Small PDF and Word files, written by hand so that each is what its test says and nothing else."""

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"


def pdf(pages: Sequence[str], title: str = "", forms: Sequence[bytes] = ()) -> bytes:
    """Return a PDF with these texts, a page each; an empty one is a page without a text layer.

    `forms` are contents that a page or another form draws as /X0, /X1, …; the first page draws
    the first.
    """
    first_form = 4
    first_page = first_form + len(forms)
    forms_named = " ".join(f"/X{at} {first_form + at} 0 R" for at in range(len(forms)))
    resources = f"<< /Font << /F 3 0 R >> /XObject << {forms_named} >> >>"
    kids = " ".join(f"{first_page + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *(
            _stream(
                form, f"/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Resources {resources}"
            )
            for form in forms
        ),
    ]
    for at, text in enumerate(pages):
        content = f"BT /F 12 Tf 14 TL 72 720 Td {_shown(text)} ET" if text else "0 0 9 9 re f"
        drawn = " /X0 Do" if forms and not at else ""
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources {resources} "
            f"/Contents {first_page + 2 * at + 1} 0 R >>".encode(),
            _stream((content + drawn).encode("latin-1")),
        ]
    objects.append(f"<< /Title ({title}) >>".encode())
    return _assembled(objects)


def _shown(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return " ".join(f"({line}) Tj T*" for line in escaped.split("\n"))


def _stream(content: bytes, entries: str = "") -> bytes:
    return f"<< {entries} /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream"


def _assembled(objects: Sequence[bytes]) -> bytes:
    """Number the objects and write where each starts; the last is the file's information."""
    data = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(objects) + 1, len(objects))
    return bytes(data + b"startxref\n%d\n%%%%EOF\n" % start)


def paragraph(text: str, style: str = "") -> str:
    """Return a paragraph of a Word file."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def docx(body: str, title: str = "") -> bytes:
    """Return a Word file with this WordprocessingML between the body's tags."""
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/relationships/officeDocument" Target="word/document.xml"/>'
        "</Relationships>",
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">'
        '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
        "</w:styles>",
        "docProps/core.xml": f'<c:coreProperties xmlns:c="{_PACKAGE}/metadata/core-properties" '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title>'
        "</c:coreProperties>",
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()
