"""Rule about phrases that address the model that reads a document, rather than its readers.

Decides how phrases are looked for; which ones, `preprocess.rules.phrases` says. By wording alone: a
text about such phrases that quotes them is found as well, and an order in other words is not. May
import this package.
"""

import re
from collections import defaultdict

from preprocess.rules.base import Hits, Rule
from preprocess.rules.phrases import LANGUAGES, PHRASES
from preprocess.rules.scan import Scan

_Patterns = dict[str, re.Pattern[str]]


def _patterns() -> dict[tuple[str, ...], _Patterns]:
    """Return, by what a text needs to have, one pattern for each stem, which phrases share.

    A text is searched for the plain strings first, and a pattern that begins with one is searched
    for almost as fast.
    """
    rests: dict[tuple[str, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for phrase in PHRASES:
        for stem, ending in phrase.stems.items():
            rests[phrase.needs][stem].append(f"(?:{ending}){phrase.rest}")
    return {
        needs: {stem: re.compile(f"{stem}(?:{'|'.join(each)})") for stem, each in stems.items()}
        for needs, stems in rests.items()
    }


_PATTERNS = _patterns()


def _find(scan: Scan) -> Hits | None:
    lowered = scan.lowered
    by_end = {
        match.end(): match.start()
        for needs, patterns in _PATTERNS.items()
        if not needs or any(need in lowered for need in needs)
        for stem, pattern in patterns.items()
        if stem in lowered
        for match in pattern.finditer(lowered)
    }
    return Hits(len(by_end), scan.origin(min(by_end.values()))) if by_end else None


RULES = (
    Rule(
        "prompt_injection",
        "high",
        "Phrases that give orders to the model, such as “ignore all previous instructions”, in "
        f"{', '.join(LANGUAGES[:-1])} and {LANGUAGES[-1]}. Text that quotes them is found too.",
        _find,
    ),
)
