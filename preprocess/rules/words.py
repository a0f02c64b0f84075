"""Rule about words that are spelled with letters of another script to look like themselves.

Science mixes scripts (µm, ΔG) and so do loan words (SMSки): only letters that a reader takes for
those around them count. May import numpy and this package.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import LETTERS, Mark, Positions, Scan, runs

#: Shorter ones are formulas and abbreviations.
_MIN_LEN = 4
_SCRIPTS = (Mark.LATIN, Mark.GREEK, Mark.CYRILLIC)


def _find(scan: Scan) -> Hits | None:
    scripts = [script for script in _SCRIPTS if scan.present & script]
    if len(scripts) < 2:
        return None
    letters = scan.marks & np.uint32(LETTERS)
    first, second = letters[:-1], letters[1:]
    seams = (first != second) & (first != 0) & (second != 0)
    if not seams.any():
        return None
    starts, ends = runs(letters != 0, _MIN_LEN)
    num_seams = np.cumsum(seams, dtype=np.int32)  # num_seams[at]: up to the one behind character at
    is_mixed = num_seams[ends - 2] > np.where(starts > 0, num_seams[starts - 1], 0)
    starts, ends = starts[is_mixed], ends[is_mixed]
    found: Positions = starts[_are_disguised(scan, scripts, starts, ends)]
    return Hits(len(found), int(found[0])) if len(found) else None


def _are_disguised(
    scan: Scan, scripts: Sequence[int], starts: Positions, ends: Positions
) -> NDArray[np.bool_]:
    """Return, for each word, whether its strange letters look like the script of the others."""
    lengths = ends - starts
    last = np.cumsum(lengths)
    first = last - lengths
    shifts = np.repeat((starts - first).astype(np.int32), lengths)
    letters = scan.marks[shifts + np.arange(len(shifts), dtype=np.int32)]
    totals = [_running_total(letters, script) for script in scripts]
    twins = [_running_total(letters, script | Mark.LOOKALIKE) for script in scripts]
    counts = np.array([total[last] - total[first] for total in totals])
    plain = counts - np.array([twin[last] - twin[first] for twin in twins])
    # of two scripts with as many letters, the one that the others could pass for
    main = (2 * counts + (plain.sum(axis=0) == plain)).argmax(axis=0)
    each = np.arange(len(starts))
    num_strange = counts.sum(axis=0) - counts[main, each]
    are_twins = plain.sum(axis=0) == plain[main, each]
    # an ending in the language of the text around it is grammar, not disguise
    tail = np.array([total[last] - total[last - num_strange] for total in totals])
    is_grammar = (tail[main, each] == 0) & _speaks(scan, scripts)[tail.argmax(axis=0)]
    disguised: NDArray[np.bool_] = are_twins & (num_strange > 0) & ~is_grammar
    return disguised


def _running_total(marks: NDArray[np.uint32], wanted: int) -> NDArray[np.int32]:
    """Return how many characters that have all these marks stand in front of each place."""
    total = np.zeros(len(marks) + 1, dtype=np.int32)
    np.cumsum(marks & np.uint32(wanted) == np.uint32(wanted), out=total[1:])
    return total


def _speaks(scan: Scan, scripts: Sequence[int]) -> NDArray[np.bool_]:
    """Return, for each script, whether the text has letters of it that look like no other."""
    plain = (scan.marks & np.uint32(script | Mark.LOOKALIKE) == script for script in scripts)
    return np.array([marks.any() for marks in plain])


RULES = (
    Rule(
        "mixed_scripts",
        "medium",
        "Words in which letters of another script stand for ones that look alike, such as a "
        "Cyrillic a in a Latin word.",
        _find,
    ),
)
