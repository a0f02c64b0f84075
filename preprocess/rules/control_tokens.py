"""Rule about control tokens of the model that is served, spelled out in a document.

They stay plain text in any case, because documents are tokenised apart from the template. May
import this package.
"""

from collections.abc import Callable

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Mark, Scan

#: Control tokens are shorter.
_MAX_TOKEN_LEN = 64
_STRIDE = 256


def _find(scan: Scan) -> Hits | None:
    spells = scan.spells_control_token
    if not scan.present & Mark.SURROGATE and spells(scan.text):
        return _locate(scan.text, spells)
    if scan.folded is not scan.text and spells(scan.folded):
        hits = _locate(scan.folded, spells)
        return Hits(hits.count, scan.origin(hits.at))
    return None


def _locate(text: str, spells: Callable[[str], bool]) -> Hits:
    """Return in how many stretches of text one begins, and where the first one does."""
    stretches = [
        start
        for start in range(0, len(text), _STRIDE)
        if spells(text[start : start + _STRIDE + _MAX_TOKEN_LEN])
    ]
    if not stretches:
        return Hits(1, 0)
    low, high = stretches[0], min(len(text), stretches[0] + _STRIDE + _MAX_TOKEN_LEN)
    end = high
    while low + 1 < high:  # the token is whole in text[low:end], and no longer in text[high:end]
        middle = (low + high) // 2
        low, high = (middle, high) if spells(text[middle:end]) else (low, middle)
    return Hits(len(stretches), low)


RULES = (
    Rule(
        "control_tokens_in_text",
        "medium",
        "A control token of the model spelled out, also in full-width letters or with invisible "
        "characters in between; counted once in 256 characters. It stays text and ends nothing.",
        _find,
    ),
)
