"""Where a text may be cut: its headings, sentences, table rows and blocks of code, in order.

Decides what belongs together, from marks alone and in any script; knows neither tokens nor budgets.
A text is tiled by its units: each starts where the one before it ends, with the white space between
them in front, as tokenizers see it. Lines that were wrapped at a width are joined, so that a
sentence may reach over several. A unit has at most `MAX_UNIT_CHARS` characters; longer ones are cut
at the best Unicode boundary, and inside a grapheme only where that alone is longer. A text of over
200,000 lines has units of some lines each, whatever they hold. Linear in the text. May import
`preprocess.breaks`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from preprocess.breaks import MAX_UNIT_CHARS, last_break

#: Lines are taken as wrapped up to this width, from this width on.
_MIN_WRAP, _MAX_WRAP = 40, 200
_MAX_HEADING_CHARS = 80
#: Bounds what is held of a text that is all line breaks: some 200 bytes a line.
_MAX_LINES = 200_000

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
_UNDERLINE = re.compile(r"\s*([=\-~*^+#])\1{2,}\Z")
_ITEM = re.compile(r"\s*(?:[-*+•\u2013\u2014]\s|\(?\d{1,3}[.)]\s|\(?[a-z][.)]\s)")
#: What no wrapped line goes on with: an item, a log line, a row of figures.
_OPENS = re.compile(rf"{_ITEM.pattern}|\s*[\d\[<{{]")
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
    "mr mrs ms dr prof st vs fig eq sec ch pp vol ed al approx cf e.g i.e "  # noqa: SIM905 - reads better as words
    "z.b bzw ca sr sra mme mlle art".split()
)

Kind = Literal["heading", "text", "row", "code"]


#: What ends with a unit: a paragraph, a table, a block of code; a sentence, an item, a line; or
#: nothing, where only its length is the reason.
Ends = Literal["block", "sentence", "nothing"]


class Unit(NamedTuple):
    """What is kept or left out as one."""

    start: int
    end: int
    kind: Kind
    ends: Ends


class _Line(NamedTuple):
    start: int
    end: int  # without the white space at its end
    text: str


class _Block(NamedTuple):
    kind: Kind
    lines: Sequence[_Line]


def units(text: str) -> list[Unit]:
    """Return the units of a text, in order; none for one that is all white space.

    Cost: some 0.1 µs a character.
    """
    if text.count("\n") + text.count("\r") > _MAX_LINES:
        return _slabs(text)
    found: list[Unit] = []
    at = 0
    for block in _blocks(_lines(text)):
        for end, ends in _ends(text, block):
            found.append(Unit(at, end, block.kind, ends))
            at = end
        found[-1] = found[-1]._replace(ends="block")
    return found


def _slabs(text: str) -> list[Unit]:
    """Return units of a few lines each, whatever they hold."""
    found: list[Unit] = []
    at, last = 0, len(text.rstrip())
    while at < last:
        limit = at + MAX_UNIT_CHARS
        end = text.rfind("\n", at + MAX_UNIT_CHARS // 2, limit)
        if limit >= last:
            end = last
        is_line = end != -1
        if not is_line:
            end = last_break(text, at, limit)
        found.append(Unit(at, end, "text", "block" if is_line else "nothing"))
        at = end
    return found


def _lines(text: str) -> list[_Line]:
    lines = []
    at = 0
    for line in text.splitlines(keepends=True):
        stripped = line.rstrip()
        lines.append(_Line(at, at + len(stripped), stripped))
        at += len(line)
    return lines


def _blocks(lines: Sequence[_Line]) -> Iterator[_Block]:
    at = 0
    while at < len(lines):
        line = lines[at].text
        if not line:
            at += 1
            continue
        upto = at + 1
        kind: Kind = "text"
        if fence := _FENCE.match(line):
            kind, upto = "code", _closed(lines, at, fence[1])
        elif _HEADING.match(line):
            kind = "heading"
        elif _are_rows(lines, at):
            kind = "row"
            while upto < len(lines) and "|" in lines[upto].text:
                upto += 1
        else:
            upto = _paragraph(lines, at)
            if _is_title(lines[at:upto]):
                kind = "heading"
        yield _Block(kind, lines[at:upto])
        at = upto


def _closed(lines: Sequence[_Line], at: int, fence: str) -> int:
    """Return the line behind a fenced block's end; an open one reaches to the last line."""
    for upto in range(at + 1, len(lines)):
        closing = _FENCE.match(lines[upto].text)
        if closing and closing[1].startswith(fence):
            return upto + 1
    return max(upto for upto in range(at + 1, len(lines) + 1) if lines[upto - 1].text)


def _are_rows(lines: Sequence[_Line], at: int) -> bool:
    """Whether two lines of a table begin here."""
    return "|" in lines[at].text and at + 1 < len(lines) and "|" in lines[at + 1].text


def _paragraph(lines: Sequence[_Line], at: int) -> int:
    """Return the line behind the paragraph that begins at `at`; a title's underline is its last."""
    if at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1].text):
        return at + 2
    for upto in range(at + 1, len(lines)):
        line = lines[upto].text
        if not line or _is_marked(line) or _are_rows(lines, upto):
            return upto
    return len(lines)


def _is_marked(line: str) -> bool:
    """Whether a line opens a block of code or is a heading."""
    return line.lstrip()[0] in "#`~" and (_FENCE.match(line) or _HEADING.match(line)) is not None


def _is_title(lines: Sequence[_Line]) -> bool:
    """Whether this is an underlined line, or a short one by itself that no stop ends."""
    if len(lines) == 2:
        return _UNDERLINE.match(lines[1].text) is not None
    line = lines[0].text.lstrip()
    return (
        len(lines) == 1
        and len(line) <= _MAX_HEADING_CHARS
        and line[-1].isalnum()
        and not line[0].islower()
        and not _ITEM.match(line)
    )


def _ends(text: str, block: _Block) -> list[tuple[int, Ends]]:
    """Return where the units of a block end, without the white space behind them; at least one."""
    first, last = block.lines[0].start, block.lines[-1].end
    if block.kind in ("heading", "code") and last - first <= MAX_UNIT_CHARS:
        return [(last, "block")]
    ends: list[tuple[int, Ends]] = []
    for start, end in _joined(block):
        if block.kind == "text":
            _add_sentences(ends, text, start, end)
        else:
            _add(ends, text, start, end)
    return ends


def _joined(block: _Block) -> Iterator[tuple[int, int]]:
    """Yield where the lines of a block start and end, those of wrapped prose joined."""
    lines = block.lines
    start = lines[0].start
    width = max(line.end - line.start for line in lines)
    may_wrap = block.kind == "text" and _MIN_WRAP <= width <= _MAX_WRAP
    for line, following in pairwise(lines):
        if not (may_wrap and _is_wrapped(line, following.text, width)):
            yield start, line.end
            start = following.start
    yield start, lines[-1].end


def _is_wrapped(line: _Line, following: str, width: int) -> bool:
    """Whether a line ends only because the next word did not fit into the width."""
    word = following.split(None, 1)[0]
    return line.end - line.start + 1 + len(word) > width and not _OPENS.match(following)


def _add_sentences(ends: list[tuple[int, Ends]], text: str, start: int, end: int) -> None:
    for stop in _STOP.finditer(text, start, end):
        at = stop.end()
        if at < end and _ends_sentence(text, stop, end):
            _add(ends, text, start, at)
            start = at
    _add(ends, text, start, end)


def _ends_sentence(text: str, stop: re.Match[str], end: int) -> bool:
    if text[stop.start()] != ".":
        return True
    at = stop.end() + 1
    if text[at : at + 1].isspace() and (behind := _BLANKS.match(text, at, end)):
        at = behind.end()
    if text[at : at + 1].islower():
        return False
    word = text[max(0, stop.start() - 8) : stop.start()].rsplit(None, 1)[-1:]
    return not word or not (
        word[0].lower().lstrip("([\"'") in _ABBREVIATIONS
        or (len(word[0]) == 1 and word[0].isupper())
    )


def _add(ends: list[tuple[int, Ends]], text: str, start: int, end: int) -> None:
    """Add the end of what lies between, and places before it where that is too long."""
    while end - start > MAX_UNIT_CHARS:
        start = last_break(text, start, start + MAX_UNIT_CHARS)
        ends.append((start, "nothing"))
    if end > start:
        ends.append((end, "sentence"))
