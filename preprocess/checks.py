"""From a document's bytes to its text, or to the reason why not.

The rules, in the order in which they are applied:

- More bytes than the limit: `too_large`.
- The bytes open like a known binary format: `not_text`.
- The declared encoding decides; nothing is guessed. Bytes that are not valid in it, or an unknown
  encoding: `encoding`, with the offset of the first bad byte.
- One byte-order mark at the very beginning says how to read the bytes and is not part of the text.
  One of another encoding than the declared one contradicts it: `encoding`.
- Nothing to see (only white space, control characters and characters without a glyph):
  `empty_document`.
- More than a tenth of the bytes are control characters that text does not use: `not_text`.

Everything else passes byte for byte, whatever its script: no normalising, no stripping; what is odd
in it `preprocess.rules` says. That goes for lone surrogates too, which JSON and some encodings can
express: the rule of that name refuses or repairs them. May import docmill.wire, docmill.marks and
docmill.errors.
"""

import codecs
import re
from dataclasses import dataclass

from docmill.errors import Reason
from docmill.marks import contradicted_by
from docmill.wire import Failure

_UTF8_NAMES = frozenset({"utf-8", "utf8", "UTF-8", "UTF8"})
#: Codecs that turn bytes into text but encode no text files; some take quadratic time.
_NO_TEXT_CODECS = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}
)
_SIGNATURES = (
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a ZIP file (perhaps .docx, .xlsx or .epub)"),
    (b"\xd0\xcf\x11\xe0", "an Office file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF89a", "a GIF image"),
    (b"\x7fELF", "a program"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"BZh91AY&SY", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z file"),
    (b"SQLite format 3\x00", "a database"),
    (b"{\\rtf1", "an RTF file"),
)
#: All control characters but those that text files use: BEL BS TAB LF VT FF CR ESC.
_CONTROLS = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}) + b"\x7f"
_MAX_CONTROL_SHARE = 0.1
_DECLARE = "declare the document's own encoding (encoding, --encoding), or convert it"
#: Not white space, a control character, default-ignorable in Unicode's sense, or a braille blank.
_VISIBLE = re.compile(
    r"[^\s\x00-\x1f\x7f-\xa0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class Text:
    """A document that passed; it may hold lone surrogates."""

    text: str


def read(document: bytes, encoding: str, max_bytes: int) -> Text | Failure:
    """Return the document's text, or why it cannot be processed.

    Args:
        document: The bytes as they came.
        encoding: What they are declared to be.
        max_bytes: How many are taken.

    Cost: linear in the bytes; some 2 ns each.
    """
    if len(document) > max_bytes:
        return _refuse(
            Reason.TOO_LARGE,
            f"the document has {len(document):,} bytes; at most {max_bytes:,} are taken: split it",
        )
    for signature, kind in _SIGNATURES:
        if document.startswith(signature):
            return _refuse(
                Reason.NOT_TEXT, f"the document looks like {kind}: extract its text first"
            )
    decoded = _decode(document, encoding)
    return _judge(*decoded) if isinstance(decoded, tuple) else decoded


def _refuse(reason: Reason, message: str) -> Failure:
    return Failure(code=reason, message=message)


def _decode(document: bytes, encoding: str) -> tuple[str, bytes] | Failure:
    """Return the text, and the same in UTF-8."""
    try:
        if marked := contradicted_by(document, encoding):
            return _refuse(
                Reason.ENCODING,
                f"the document opens with the mark of {marked} but is declared {encoding}: "
                f"{_DECLARE}",
            )
        if encoding in _UTF8_NAMES:
            return document.decode(errors="surrogatepass"), document
        codec = codecs.lookup(encoding).name
        if codec in _NO_TEXT_CODECS:
            raise LookupError(encoding)
        # others take no handler for surrogates, or need none
        errors = "surrogatepass" if codec.startswith("utf-") else "strict"
        text = document.decode(encoding, errors)
        return text, text.encode(errors="surrogatepass")
    except UnicodeDecodeError as error:
        return _refuse(Reason.ENCODING, _describe(document, encoding, error))
    except (LookupError, ValueError, UnicodeError):
        return _refuse(
            Reason.ENCODING,
            f"{encoding[:40]!r} is not a text encoding that can be read here; name another",
        )


def _describe(document: bytes, encoding: str, error: UnicodeDecodeError) -> str:
    bad = f"0x{document[error.start]:02x}" if error.start < len(document) else "the end"
    return f"not valid {encoding} at byte {error.start} ({bad}: {error.reason}): {_DECLARE}"


def _judge(text: str, as_utf8: bytes) -> Text | Failure:
    text = text.removeprefix("\ufeff")
    if not _VISIBLE.search(text):
        return _refuse(Reason.EMPTY_DOCUMENT, "the document holds nothing that can be seen")
    num_controls = len(as_utf8) - len(as_utf8.translate(None, _CONTROLS))
    if num_controls > _MAX_CONTROL_SHARE * len(as_utf8):
        return _refuse(
            Reason.NOT_TEXT,
            f"{num_controls:,} of the document's {len(as_utf8):,} bytes are control characters: "
            "it looks like a binary file: extract its text first; or, if it is text, name its "
            "encoding (--encoding), perhaps utf-16-le",
        )
    return Text(text)
