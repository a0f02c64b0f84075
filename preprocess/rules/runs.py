"""Rules about one thing repeated without end, by accident or to keep a tokenizer busy.

May import numpy and this package.
"""

from itertools import pairwise

import numpy as np

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Mark, Scan, replace, runs

#: Aligned tables stay below, and so do rules drawn with characters.
_MAX_SPACES = 200
_MAX_SAME = 200
#: What a repair leaves of a run.
_KEPT = 3
#: Any text that repeats a pattern for twice so long holds one whole block of it.
_BLOCK_LEN = 1024
_MAX_PERIOD = 64


def _find_spaces(scan: Scan) -> Hits | None:
    if not scan.present & Mark.SPACE:
        return None
    starts, _ = runs(scan.mask(Mark.SPACE), _MAX_SPACES + 1)
    return Hits(len(starts), int(starts[0])) if len(starts) else None


def _shorten_spaces(scan: Scan) -> str:
    starts, ends = runs(scan.mask(Mark.SPACE), _MAX_SPACES + 1)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return replace(scan.text, ((start, end, _gap(scan.text, start, end)) for start, end in spans))


def _gap(text: str, start: int, end: int) -> str:
    return "\n\n" if text.find("\n", start, end) >= 0 else " "


def _same(scan: Scan) -> list[tuple[int, int]]:
    """Return the start and the end of each overlong run of one visible character."""
    points, marks = scan.points, scan.marks
    equals_next = (points[1:] == points[:-1]) & (marks[1:] & np.uint32(Mark.SPACE) == 0)
    starts, ends = runs(equals_next, _MAX_SAME)
    return [(start, end + 1) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _find_same(scan: Scan) -> Hits | None:
    found = _same(scan)
    return Hits(len(found), found[0][0]) if found else None


def _shorten_same(scan: Scan) -> str:
    return replace(scan.text, ((start + _KEPT, end, "") for start, end in _same(scan)))


def _find_pattern(scan: Scan) -> Hits | None:
    last = len(scan.text) - _BLOCK_LEN
    starts = [at for at in range(0, last + 1, _BLOCK_LEN) if _repeats(scan.text, at)]
    if not starts:
        return None
    num_runs = 1 + sum(later - earlier > _BLOCK_LEN for earlier, later in pairwise(starts))
    return Hits(num_runs, starts[0])


def _repeats(text: str, start: int) -> bool:
    """Whether a block is one short pattern, repeated; runs of one character are another rule's."""
    probe = text[start : start + _MAX_PERIOD]  # a whole period at least, so that it recurs in step
    period = text.find(probe, start + 1, start + 2 * _MAX_PERIOD) - start
    if period <= 1:
        return False
    end = start + _BLOCK_LEN
    return text[start : end - period] == text[start + period : end] and not probe.isspace()


RULES = (
    Rule(
        "overlong_whitespace",
        "low",
        f"More than {_MAX_SPACES} white-space characters in a row.",
        _find_spaces,
        repair=_shorten_spaces,
        repair_summary="makes a run with line breaks an empty line, and any other a space",
    ),
    Rule(
        "repeated_character",
        "medium",
        f"One visible character more than {_MAX_SAME} times in a row.",
        _find_same,
        repair=_shorten_same,
        repair_summary=f"keeps the first {_KEPT}",
    ),
    Rule(
        "repeated_pattern",
        "medium",
        f"A pattern of 2 to {_MAX_PERIOD} characters repeated over {2 * _BLOCK_LEN:,} "
        "characters or more.",
        _find_pattern,
    ),
)
