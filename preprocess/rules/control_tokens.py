"""Rule about control tokens of the model that is served, spelled out in a document.

They stay plain text in any case, because documents are tokenised apart from the template. May
import this package.
"""

from bisect import bisect_left
from collections.abc import Callable

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Mark, Scan

#: Control tokens are shorter.
_MAX_TOKEN_LEN = 64
_STRETCH_LEN = 320


def _find(scan: Scan) -> Hits | None:
    spells = scan.spells_control_token
    if not scan.present & Mark.SURROGATE and spells(scan.text):
        return _locate(scan.text, spells)
    if scan.folded is not scan.text and spells(scan.folded):
        hits = _locate(scan.folded, spells)
        return Hits(hits.count, scan.origin(hits.at))
    return None


def _locate(text: str, spells: Callable[[str], bool]) -> Hits:
    """Return how many stretches of text spell one out, and where the first one begins."""
    starts: list[int] = []
    start = 0
    while start < len(text):
        is_hit = spells(text[start : start + _STRETCH_LEN])
        if is_hit:
            starts.append(start)
        # one may lie across the end of a stretch
        start += _STRETCH_LEN if is_hit else _STRETCH_LEN - _MAX_TOKEN_LEN
    first = starts[0] if starts else 0
    stretch = range(first, first + _STRETCH_LEN)
    end = bisect_left(stretch, True, key=lambda at: spells(text[first:at]))
    at = bisect_left(stretch, True, key=lambda at: not spells(text[at : first + end]))
    return Hits(max(1, len(starts)), first + max(0, at - 1))


RULES = (
    Rule(
        "control_tokens_in_text",
        "medium",
        "A control token of the model spelled out, also in full-width letters or with invisible "
        f"characters in between; counted once in {_STRETCH_LEN} characters. It stays text "
        "and ends nothing.",
        _find,
    ),
)
