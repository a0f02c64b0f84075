"""Byte-order marks: what a text's first bytes say about its encoding.

Decides which mark a text opens with and which declared encodings that contradicts; what becomes of
such a text the caller decides. May import the standard library only.
"""

import codecs

#: Each mark, whose it is, and the encodings that agree with it, by the names of `codecs.lookup`.
#: The longer ones come first: that of UTF-32 begins like that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32", frozenset({"utf-32", "utf-32-le"})),
    (codecs.BOM_UTF32_BE, "UTF-32", frozenset({"utf-32", "utf-32-be"})),
    (codecs.BOM_UTF8, "UTF-8", frozenset({"utf-8", "utf-8-sig"})),
    (codecs.BOM_UTF16_LE, "UTF-16", frozenset({"utf-16", "utf-16-le"})),
    (codecs.BOM_UTF16_BE, "UTF-16", frozenset({"utf-16", "utf-16-be"})),
)

#: How many bytes of a text have to be seen.
MARK_BYTES = 4


def contradicted_by(start: bytes, encoding: str) -> str | None:
    """Return whose mark a text opens with, if that is not the declared encoding's.

    Args:
        start: The text's first bytes, `MARK_BYTES` or more.
        encoding: Declared; a name that `codecs.lookup` knows.
    """
    for mark, name, agreeing in _MARKS:
        if start.startswith(mark):
            return None if codecs.lookup(encoding).name in agreeing else name
    return None
