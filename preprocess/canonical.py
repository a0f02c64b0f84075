"""The form in which two documents count as the same text.

Decides which spellings of a text are one: canonically equivalent characters, the three kinds of
line end, a byte order mark in front and line ends behind. Nothing that a reader could see is folded
away: neither case nor white space nor compatibility characters. The form serves comparison alone;
the model reads the document as it came. May import the standard library.
"""

import re
import unicodedata

#: Raised when the form changes, so that what was kept under the old one is not found again.
VERSION = 1
#: Longer runs of combining marks stay as they are: CPython sorted them in quadratic time until
#: 2026 (gh-149079). No script needs half as many.
_MAX_MARKS = 64
#: All combining marks, and some signs that normalising leaves alone.
_MARK = r"[^\x00-\u02ff\w\s]"
_OVERLONG_MARKS = re.compile(f"({_MARK}{{{_MAX_MARKS + 1},}})")
_TWO_MARKS = re.compile(_MARK * 2)


def canonical(text: str) -> str:
    """Return the text in NFC, with LF line ends, without byte order marks and trailing line ends.

    Cost: O(length), whatever the text.
    """
    text = text.lstrip("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.rstrip("\n")
    return text if text.isascii() else _composed(text)


def _composed(text: str) -> str:
    # an overlong run covers two neighbouring samples at least
    if not _TWO_MARKS.search(text[:: _MAX_MARKS // 2]):
        return unicodedata.normalize("NFC", text)
    pieces = _OVERLONG_MARKS.split(text)  # at odd places stand the overlong runs themselves
    pieces[::2] = (unicodedata.normalize("NFC", piece) for piece in pieces[::2])
    return "".join(pieces)
