"""Where a stretch of text without boundaries of its own may be cut: between words, else graphemes.

Decides by Unicode's rules, which semantic_text_splitter knows. May import that alone.
"""

import re
import unicodedata

from semantic_text_splitter import TextSplitter

#: Far above any sentence, and little enough for the splitter, whose time is quadratic in a piece.
MAX_UNIT_CHARS = 2000
#: Lets the splitter see whether a grapheme or a word goes on.
_LOOKAHEAD_CHARS = 64
#: What `str.splitlines` takes for the end of a line.
_LINE_BREAK = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
#: Joiners, skin tones, Hangul vowels and finals.
_JOINED = re.compile("[\u200c\u200d\U0001f3fb-\U0001f3ff\u1160-\u11ff\ud7b0-\ud7fb]")
_VIRAMA = 9  # the combining class of what joins two consonants


def last_break(text: str, start: int, limit: int) -> int:
    """Return the last place up to `limit` where a sentence, else a word, else a grapheme ends.

    Args:
        text: The text.
        start: Such a place itself, at most `MAX_UNIT_CHARS` before `limit`.
        limit: A place in the text, behind `start`.

    Returns:
        A place behind `start` and up to `limit`; inside a grapheme only if it fills all between.
    """
    window = _LINE_BREAK.sub(" ", text[start : limit + _LOOKAHEAD_CHARS])
    if len(window) <= limit - start:
        return limit
    chunk: str = TextSplitter(limit - start, trim=False).chunks(window)[0]
    return start + len(chunk)


def is_inside_grapheme(text: str, start: int, at: int) -> bool:
    """Whether the character at a place belongs to the grapheme before it.

    Knows what most graphemes of several characters are made of: marks, joiners, conjuncts, skin
    tones, flags, Hangul letters.

    Args:
        text: The text.
        start: Where a grapheme begins, before `at`.
        at: A place in the text.
    """
    before, after = text[at - 1 : at], text[at : at + 1]
    if not before or not after:
        return False
    if _FLAG.fullmatch(before) and _FLAG.fullmatch(after):
        return (at - start) % 2 == 1
    return (
        unicodedata.category(after).startswith("M")
        or _JOINED.fullmatch(after) is not None
        or before == "\u200d"
        or unicodedata.combining(before) == _VIRAMA
        or (before, after) == ("\r", "\n")
    )
