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
    seams = np.flatnonzero((first != second) & (first != 0) & (second != 0))
    if not len(seams):
        return None
    starts, ends = runs(letters != 0, _MIN_LEN)
    mixed = np.zeros(len(starts) + 1, dtype=np.bool_)
    mixed[np.searchsorted(ends, seams, side="right")] = True
    found = _disguised(scan, scripts, starts[mixed[:-1]], ends[mixed[:-1]])
    return Hits(len(found), int(found[0])) if len(found) else None


def _disguised(scan: Scan, scripts: Sequence[int], starts: Positions, ends: Positions) -> Positions:
    """Return the starts of those words whose strange letters look like the script of the others."""
    totals = [_running_total(scan, script) for script in scripts]
    twins = [_running_total(scan, script, Mark.LOOKALIKE) for script in scripts]
    counts = np.array([total[ends] - total[starts] for total in totals])
    num_twins = np.array([total[ends] - total[starts] for total in twins])
    plain = counts - num_twins
    # of two scripts with as many letters, the one that the others could pass for
    main = (2 * counts + (plain.sum(axis=0) == plain)).argmax(axis=0)
    each = np.arange(len(starts))
    num_strange = counts.sum(axis=0) - counts[main, each]
    is_twins_only = plain.sum(axis=0) == plain[main, each]
    # an ending in the language of the text around it is grammar, not disguise
    tail = np.array([total[ends] - total[ends - num_strange] for total in totals])
    is_ending = tail[main, each] == 0
    speaks = np.array([total[-1] for total in totals]) > np.array([twin[-1] for twin in twins])
    is_grammar = is_ending & speaks[tail.argmax(axis=0)]
    found: Positions = starts[is_twins_only & (num_strange > 0) & ~is_grammar]
    return found


def _running_total(scan: Scan, *marks: int) -> NDArray[np.int32]:
    """Return how many characters that have all these marks stand in front of each place."""
    wanted = np.uint32(sum(marks))
    total: NDArray[np.int32] = np.zeros(len(scan.marks) + 1, dtype=np.int32)
    np.cumsum(scan.marks & wanted == wanted, out=total[1:])
    return total


RULES = (
    Rule(
        "mixed_scripts",
        "medium",
        "Words in which letters of another script stand for ones that look alike, such as a "
        "Cyrillic a in a Latin word.",
        _find,
    ),
)
