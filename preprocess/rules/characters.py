"""Rules about single characters that no text needs, or that nobody sees.

Characters that some script or emoji needs pass: joiners between letters of scripts that join, one
variation selector after its base, the tags of a flag. May import numpy and this package.
"""

import re
from collections.abc import Callable

import numpy as np

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import LETTERS, Mark, Positions, Scan, replace, runs

#: The flags of England, Scotland and Wales, and others of their form: a black flag, the letters of
#: a region, an end.
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}+\U000e007f")
#: Longer runs hide bits; no script puts more joiners between two letters.
_MAX_ZERO_WIDTHS = 3
#: Hebrew with all its accents, Vietnamese and phonetic transcription stay below.
_MAX_STACKED = 8


def _finder(mark: int) -> Callable[[Scan], Hits | None]:
    """Return a function that finds all characters of a class."""

    def find(scan: Scan) -> Hits | None:
        return _hits(scan.positions(mark))

    return find


def _replacer(mark: int, replacement: str) -> Callable[[Scan], str]:
    """Return a function that replaces all characters of a class."""

    def repair(scan: Scan) -> str:
        positions = scan.positions(mark).tolist()
        return replace(scan.text, ((at, at + 1, replacement) for at in positions))

    return repair


def _hits(positions: Positions) -> Hits | None:
    return Hits(len(positions), int(positions[0])) if len(positions) else None


def _pair_surrogates(scan: Scan) -> str:
    return scan.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _stray_tags(scan: Scan) -> Positions:
    if not scan.present & Mark.TAG:
        return scan.positions(Mark.TAG)
    is_stray = scan.mask(Mark.TAG)
    for flag in _FLAG.finditer(scan.text):
        is_stray[flag.start() : flag.end()] = False
    return np.flatnonzero(is_stray)


def _find_tags(scan: Scan) -> Hits | None:
    return _hits(_stray_tags(scan))


def _remove_tags(scan: Scan) -> str:
    return replace(scan.text, ((at, at + 1, "") for at in _stray_tags(scan).tolist()))


def _find_selectors(scan: Scan) -> Hits | None:
    if not scan.present & Mark.VARIATION:
        return None
    return _hits(runs(scan.mask(Mark.VARIATION), 2)[0])


def _keep_one_selector(scan: Scan) -> str:
    return _shorten(scan, Mark.VARIATION, 1)


def _find_stacked(scan: Scan) -> Hits | None:
    if not scan.present & Mark.STACKING:
        return None
    return _hits(runs(scan.mask(Mark.STACKING), _MAX_STACKED + 1)[0])


def _keep_some_stacked(scan: Scan) -> str:
    return _shorten(scan, Mark.STACKING, _MAX_STACKED)


def _shorten(scan: Scan, mark: int, max_len: int) -> str:
    starts, ends = runs(scan.mask(mark), max_len + 1)
    cuts = zip((starts + max_len).tolist(), ends.tolist(), strict=True)
    return replace(scan.text, ((start, end, "") for start, end in cuts))


def _useless_joiners(scan: Scan) -> tuple[Positions, Positions]:
    """Return the starts and ends of zero-width runs that join nothing."""
    if not scan.present & Mark.ZERO_WIDTH:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    starts, ends = runs(scan.mask(Mark.ZERO_WIDTH), 1)
    has_neighbours = (starts > 0) & (ends < len(scan.marks))
    letters = np.uint32(LETTERS)
    before = scan.marks[np.maximum(starts - 1, 0)] & letters != 0
    after = scan.marks[np.minimum(ends, len(scan.marks) - 1)] & letters != 0
    is_useless = (has_neighbours & before & after) | (ends - starts > _MAX_ZERO_WIDTHS)
    return starts[is_useless], ends[is_useless]


def _find_zero_widths(scan: Scan) -> Hits | None:
    return _hits(_useless_joiners(scan)[0])


def _remove_zero_widths(scan: Scan) -> str:
    starts, ends = _useless_joiners(scan)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return replace(scan.text, ((start, end, "") for start, end in spans))


RULES = (
    Rule(
        "lone_surrogates",
        "high",
        "Half of a UTF-16 pair without the other half, which no tokenizer can read; broken "
        "converters produce them.",
        _finder(Mark.SURROGATE),
        repair=_pair_surrogates,
        repair_summary="joins two that follow each other, replaces others by U+FFFD",
        default="reject",
    ),
    Rule(
        "control_characters",
        "low",
        "NUL and other control characters that text files do not use (BEL, BS, TAB, LF, VT, FF, "
        "CR, ESC and NEL pass).",
        _finder(Mark.CONTROL),
        repair=_replacer(Mark.CONTROL, ""),
        repair_summary="removes them",
    ),
    Rule(
        "noncharacters",
        "low",
        "Code points that Unicode reserves for programs' own use, such as U+FFFE.",
        _finder(Mark.NONCHARACTER),
        repair=_replacer(Mark.NONCHARACTER, "\ufffd"),
        repair_summary="replaces each by U+FFFD",
    ),
    Rule(
        "private_use",
        "low",
        "Characters without a common meaning, often the icons of a font in text out of a PDF.",
        _finder(Mark.PRIVATE),
    ),
    Rule(
        "tag_characters",
        "high",
        "Invisible tag characters, which can spell out hidden text; those of a flag pass.",
        _find_tags,
        repair=_remove_tags,
        repair_summary="removes them",
    ),
    Rule(
        "variation_selectors",
        "high",
        "Several variation selectors in a row, which nobody sees and which can hide any bytes; one "
        "after its character passes.",
        _find_selectors,
        repair=_keep_one_selector,
        repair_summary="keeps the first of each run",
    ),
    Rule(
        "zero_width",
        "medium",
        "Zero-width characters between Latin, Greek or Cyrillic letters, where they join nothing, "
        f"and more than {_MAX_ZERO_WIDTHS} in a row anywhere; joiners in scripts that join, and in "
        "emoji, pass.",
        _find_zero_widths,
        repair=_remove_zero_widths,
        repair_summary="removes these",
    ),
    Rule(
        "stacked_marks",
        "low",
        f"More than {_MAX_STACKED} combining marks on one character.",
        _find_stacked,
        repair=_keep_some_stacked,
        repair_summary=f"keeps the first {_MAX_STACKED}",
    ),
)
