"""Where a text may be cut: its headings, sentences, table rows and blocks of code, in order.

Decides what belongs together, from marks alone and in any script; knows neither tokens nor budgets.
A text is tiled by its units: each starts where the one before it ends, with the white space between
them in front, as tokenizers see it. Lines that were wrapped at a width are joined, so that a
sentence may reach over several. A unit has at most `MAX_UNIT_CHARS` characters; longer ones are cut
at the best Unicode boundary, and inside a grapheme only where that alone is longer. Linear in the
text. May import semantic_text_splitter.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from semantic_text_splitter import TextSplitter

#: Far above any sentence, and little enough for the splitter, whose time is quadratic in a piece.
MAX_UNIT_CHARS = 2000
#: Lets the splitter see whether a grapheme or a word goes on.
_LOOKAHEAD_CHARS = 64
#: Lines are taken as wrapped up to this width, from this width on.
_MIN_WRAP, _MAX_WRAP = 40, 200
_MAX_HEADING_CHARS = 80

_LINE_BREAK = re.compile(r"\r\n|[\r\n\u2028\u2029]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
_UNDERLINE = re.compile(r"\s*([=\-~*^+#])\1{2,}\s*\Z")
_ITEM = re.compile(r"\s*(?:[-*+•\u2013\u2014]\s|\(?\d{1,3}[.)]\s|\(?[a-z][.)]\s)")
_RECORD = re.compile(r"\s*[\d\[<{]")  # a log line, a table of figures
#: The ends of sentences. Looking behind keeps a long row of dots from being tried at each dot.
_STOP = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”\u2019»)\]*_]*+(?=\s)"
    # Chinese, Japanese; Indic, Arabic, Urdu, Armenian, Ethiopic, Burmese, Khmer
    r"|[。\uff01\uff1f｡\uff0e]++[」』”\u2019\uff09】》]*+"
    r"|[।॥؟\u06d4\u0589።፧፨။៕]++[\"'”\u2019»)]*+"
)
_BLANKS = re.compile(r"\s*")
#: Words whose full stop ends no sentence even where a capital follows.
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st vs fig eq sec ch pp vol ed al approx cf e.g i.e "  # noqa: SIM905
    "z.b bzw ca sr sra mme mlle art".split()
)

Kind = Literal["heading", "text", "row", "code"]


class Unit(NamedTuple):
    """What is kept or left out as one; `ends_block` for the last of a paragraph, table or code."""

    start: int
    end: int
    kind: Kind
    ends_block: bool


class _Block(NamedTuple):
    kind: Kind
    lines: Sequence[tuple[int, int]]  # where each starts and ends, without its break


def units(text: str) -> list[Unit]:
    """Return the units of a text, in order; none for one that is all white space.

    Cost: some 0.1 µs a character.
    """
    found: list[Unit] = []
    at = 0
    for block in _blocks(text):
        ends = list(_ends(text, block))
        for end in ends:
            found.append(Unit(at, end, block.kind, end == ends[-1]))
            at = end
    return found


def last_break(text: str, start: int, limit: int) -> int:
    """Return the last place up to `limit` where a sentence, else a word, else a grapheme ends.

    Args:
        text: The text.
        start: Such a place itself, at most `MAX_UNIT_CHARS` before `limit`.
        limit: A place in the text, behind `start`.

    Returns:
        A place behind `start` and up to `limit`; inside a grapheme only if it fills all between.
    """
    window = _LINE_BREAK.sub(_blank, text[start : limit + _LOOKAHEAD_CHARS])
    if len(window) <= limit - start:
        return limit
    chunk: str = TextSplitter(limit - start, trim=False).chunks(window)[0]
    return start + len(chunk)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blocks(text: str) -> Iterator[_Block]:
    lines = list(_lines(text))
    at = 0
    while at < len(lines):
        start, end = lines[at]
        upto = at + 1
        kind: Kind = "text"
        if not text[start:end].strip():
            at = upto
            continue
        if fence := _FENCE.match(text, start, end):
            kind, upto = "code", _closed(text, lines, at, fence[1])
        elif _HEADING.match(text, start, end):
            kind = "heading"
        elif _is_row(text, lines, at) and _is_row(text, lines, upto):
            kind = "row"
            while _is_row(text, lines, upto):
                upto += 1
        else:
            upto = _paragraph(text, lines, at)
            if _is_title(text, lines[at:upto]):
                kind = "heading"
        yield _Block(kind, lines[at:upto])
        at = upto


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for found in _LINE_BREAK.finditer(text):
        yield start, found.start()
        start = found.end()
    yield start, len(text)


def _closed(text: str, lines: list[tuple[int, int]], at: int, fence: str) -> int:
    """Return the line behind a fenced block's end; an open one reaches to the end of the text."""
    for upto in range(at + 1, len(lines)):
        start, end = lines[upto]
        closing = _FENCE.match(text, start, end)
        if closing and closing[1].startswith(fence):
            return upto + 1
    return len(lines)


def _is_row(text: str, lines: list[tuple[int, int]], at: int) -> bool:
    return at < len(lines) and "|" in text[slice(*lines[at])]


def _paragraph(text: str, lines: list[tuple[int, int]], at: int) -> int:
    """Return the line behind the paragraph that begins at `at`; a title's underline is its last."""
    for upto in range(at + 1, len(lines)):
        start, end = lines[upto]
        if upto == at + 1 and _UNDERLINE.match(text, start, end):
            return upto + 1
        if (
            not text[start:end].strip()
            or _FENCE.match(text, start, end)
            or _HEADING.match(text, start, end)
            or (_is_row(text, lines, upto) and _is_row(text, lines, upto + 1))
        ):
            return upto
    return len(lines)


def _is_title(text: str, lines: list[tuple[int, int]]) -> bool:
    """Whether this is an underlined line, or a short one by itself that no stop ends."""
    start, end = lines[0]
    if len(lines) == 2 and _UNDERLINE.match(text, *lines[1]):
        return True
    line = text[start:end].strip()
    return (
        len(lines) == 1
        and len(line) <= _MAX_HEADING_CHARS
        and line[-1].isalnum()
        and not _ITEM.match(line)
        and not line[0].islower()
    )


def _ends(text: str, block: _Block) -> Iterator[int]:
    """Yield where the units of a block end, without the white space behind them."""
    first, last = block.lines[0][0], block.lines[-1][1]
    if block.kind in ("heading", "code") and last - first <= MAX_UNIT_CHARS:
        yield _stripped(text, first, last)
        return
    for start, end in _joined(text, block):
        if block.kind == "text":
            yield from _sentences(text, start, end)
        else:
            yield from _short(text, start, end)


def _joined(text: str, block: _Block) -> Iterator[tuple[int, int]]:
    """Yield the lines of a block, those of wrapped prose joined."""
    start = block.lines[0][0]
    width = max(end - start for start, end in block.lines)
    for line, following in pairwise(block.lines):
        if block.kind != "text" or not _is_wrapped(text, line, following, width):
            yield start, line[1]
            start = following[0]
    yield start, block.lines[-1][1]


def _is_wrapped(text: str, line: tuple[int, int], following: tuple[int, int], width: int) -> bool:
    """Whether a line ends only because the next word did not fit into the width."""
    if not _MIN_WRAP <= width <= _MAX_WRAP:
        return False
    if _ITEM.match(text, *following) or _RECORD.match(text, *following):
        return False
    word = text[slice(*following)].split(None, 1)[0]
    return line[1] - line[0] + 1 + len(word) > width


def _sentences(text: str, start: int, end: int) -> Iterator[int]:
    at = start
    for stop in _STOP.finditer(text, start, end):
        if stop.end() < end and _ends_sentence(text, stop, end):
            yield from _short(text, at, stop.end())
            at = stop.end()
    yield from _short(text, at, end)


def _ends_sentence(text: str, stop: re.Match[str], end: int) -> bool:
    if not stop[0].startswith("."):
        return True
    behind = _BLANKS.match(text, stop.end(), end)
    if behind and text[behind.end() : behind.end() + 1].islower():
        return False
    word = text[max(0, stop.start() - 8) : stop.start()].rsplit(None, 1)[-1:]
    return not word or not (
        word[0].lower().lstrip("([\"'") in _ABBREVIATIONS
        or (len(word[0]) == 1 and word[0].isupper())
    )


def _short(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the end of what lies between, and places before it where that is too long."""
    end = _stripped(text, start, end)
    while end - start > MAX_UNIT_CHARS:
        start = last_break(text, start, start + MAX_UNIT_CHARS)
        yield start
    if end > start:
        yield end


def _stripped(text: str, start: int, end: int) -> int:
    return start + len(text[start:end].rstrip())
