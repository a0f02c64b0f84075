"""Rule about characters that reorder text on a screen, so that people read what models do not.

Marks of a direction (LRM, RLM, ALM) pass, and so do embeddings and isolates that end within their
paragraph: right-to-left text and user-interface messages need them. May import this package.
"""

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Mark, Scan, replace

_ISOLATE, _EMBEDDING, _OVERRIDE, _END_OF_ISOLATE, _END, _BREAK = range(6)
_KINDS = {
    **dict.fromkeys("\u2066\u2067\u2068", _ISOLATE),
    **dict.fromkeys("\u202a\u202b", _EMBEDDING),
    **dict.fromkeys("\u202d\u202e", _OVERRIDE),
    "\u2069": _END_OF_ISOLATE,
    "\u202c": _END,
}


def _find(scan: Scan) -> Hits | None:
    bad = _bad_controls(scan)
    return Hits(len(bad), bad[0]) if bad else None


def _remove(scan: Scan) -> str:
    return replace(scan.text, ((at, at + 1, "") for at in _bad_controls(scan)))


def _bad_controls(scan: Scan) -> list[int]:
    """Return where overrides stand, with their ends, and what only opens or only closes."""
    if not scan.present & Mark.BIDI:
        return []
    text = scan.text
    bad: list[int] = []
    opened: list[tuple[int, int]] = []
    for at in scan.positions(Mark.BIDI | Mark.BREAK).tolist():
        kind = _KINDS.get(text[at], _BREAK)
        if kind <= _OVERRIDE:
            opened.append((at, kind))
        elif kind == _BREAK:
            if opened:
                bad += (unclosed for unclosed, _ in opened)
                opened.clear()
        elif not opened or (opened[-1][1] == _ISOLATE) != (kind == _END_OF_ISOLATE):
            bad.append(at)
        else:
            start, opener = opened.pop()
            if opener == _OVERRIDE:
                bad += (start, at)
    bad += (unclosed for unclosed, _ in opened)
    return sorted(bad)


RULES = (
    Rule(
        "bidi_controls",
        "high",
        "Overrides of the writing direction, and embeddings or isolates that do not end within "
        "their paragraph: people see another text than the model.",
        _find,
        repair=_remove,
        repair_summary="removes these",
    ),
)
