"""Where to end a document that is cut: the beginning is kept, up to the best boundary.

Decides between boundaries. In order, the last one that fits and wastes no more than its share of
the budget:

- the end of a paragraph, of a table, of a code block: an eighth; a quarter where the cut would
  otherwise run through a table or a code block;
- the end of a sentence, a table row, a line of code: half. Neither is a heading, or what a colon
  ends, since they only announce what follows;
- the end of a word, or of a grapheme where a single word fills all. Never inside a grapheme, unless
  it alone is longer than the budget.

So little is lost where sentences are short, and never more than half. May import nothing but the
other modules of this package.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from preprocess.breaks import MAX_UNIT_CHARS, is_inside_grapheme, last_break
from preprocess.outline import Unit, units
from preprocess.spans import Spans

_BLOCK_SHARE, _WHOLE_SHARE, _SENTENCE_SHARE = 1 / 8, 1 / 4, 1 / 2
#: How often a cut inside a token may turn out to cost more tokens than there are.
_MAX_TRIES = 8


def cuts(spans: Spans, budget: int) -> Iterator[int]:
    """Yield places up to which a document may be kept, the best first.

    A later one counts where the text up to the one before has too many tokens.

    Args:
        spans: A document with more tokens than the budget.
        budget: Tokens, at least 1.
    """
    limit = spans.place_before(budget)
    # what lies behind decides where the unit at the limit ends
    found = units(spans.text[: limit + MAX_UNIT_CHARS])
    for _ in range(_MAX_TRIES):
        if limit > 0:
            limit = best_cut(spans, found, 0, limit, budget)
            yield limit
            limit -= 1
    yield spans.cut_before(spans.place_before(budget))


def best_cut(spans: Spans, found: Sequence[Unit], start: int, limit: int, budget: int) -> int:
    """Return the best place to end what begins at `start`.

    Args:
        spans: The document.
        found: Its units, as far as the limit at least.
        start: Where what is kept begins.
        limit: The last place that fits; behind `start`.
        budget: The tokens up to `limit`.
    """
    number = bisect_right(found, limit, key=_end)
    if number == len(found):
        return limit  # white space
    begun = spans.counts([start])[0]
    block_floor, whole_floor, sentence_floor = (
        max(start + 1, spans.place_before(begun + int(budget * (1 - share))))
        for share in (_BLOCK_SHARE, _WHOLE_SHARE, _SENTENCE_SHARE)
    )
    runs_through = found[number].kind in ("row", "code")
    floor = whole_floor if runs_through and found[number - 1].ends != "block" else block_floor
    fitting = _backwards(found, number, sentence_floor)
    ends = [unit for unit in fitting if not _leads_on(spans.text, unit)]
    blocks = (unit.end for unit in ends if unit.ends == "block" and unit.end >= floor)
    sentences = (unit.end for unit in ends)
    place = next(blocks, None) or next(sentences, None)
    return place or _in_unit(spans.text, max(start, found[number].start), limit, sentence_floor)


def _end(unit: Unit) -> int:
    return unit.end


def _leads_on(text: str, unit: Unit) -> bool:
    """Whether a unit only announces what follows it, or nothing ends with it."""
    return unit.ends == "nothing" or unit.kind == "heading" or text[unit.end - 1] in ":\uff1a"


def _backwards(found: Sequence[Unit], number: int, floor: int) -> list[Unit]:
    """Return the units before one, the nearest first, that end no earlier than the floor."""
    first = bisect_left(found, floor, hi=number, key=_end)
    return list(reversed(found[first:number]))


def _in_unit(text: str, start: int, limit: int, floor: int) -> int:
    """Return the best place inside a unit, without the white space before it."""
    start = max(start, limit - MAX_UNIT_CHARS)  # only white space in front of a unit is longer
    if start == limit:
        return limit
    place = last_break(text, start, limit)
    if place < min(floor, limit):  # the next word is longer than the share: its last grapheme
        further = last_break(text, place, limit)
        place = place if is_inside_grapheme(text, place, further) else further
    return start + len(text[start:place].rstrip()) or place
