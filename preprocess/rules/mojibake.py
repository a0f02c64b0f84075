"""Rule about text that was once decoded wrongly: UTF-8 read in a legacy encoding.

Decides where to look; whether it is mojibake, and what it was, ftfy decides. Never repaired unless
asked for, because text about mojibake looks the same. May import ftfy and this package.
"""

import re

import ftfy

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Mark, Scan

_CONTINUATIONS = {
    encoding: re.escape(
        "".join(sorted({*bytes(range(0x80, 0xC0)).decode(encoding, "ignore"), *c1}))
    )
    for encoding, c1 in (("cp1252", map(chr, range(0x80, 0xC0))), ("cp1251", ()))
}
#: What UTF-8 sequences look like in Latin-1 and cp1252; in cp1251; in Mac Roman.
_SUSPECT = re.compile(
    "[Â-ôвВГРС√‚](?:"
    "(?<=[Â-ß])[{cp1252}]|(?<=[à-ï])[{cp1252}]{{2}}|(?<=[ð-ô])[{cp1252}]{{3}}"
    "|(?<=в)Ђ[{cp1251}]|(?<=[ВГРС])[{cp1251}](?:[ВГРС][{cp1251}]){{2}}"
    "|(?<=√)[±∂†≠®™´≤≥¥µø©]|(?<=‚)Ä[ìîïòôúùû†°¢π]"
    ")".format(**_CONTINUATIONS)
)
#: Suspects that ftfy looks at; if none of so many is mojibake, the text has a reason for them.
_MAX_CONFIRMED = 32
_MARGIN = 12


def _find(scan: Scan) -> Hits | None:
    if not (scan.present & Mark.LEAD and scan.present & Mark.CONTINUATION):
        return None
    leads = scan.mask(Mark.LEAD)[:-1]
    if not (leads & scan.mask(Mark.CONTINUATION)[1:]).any():
        return None
    starts = [match.start() for match in _SUSPECT.finditer(scan.text)]
    for nth, start in enumerate(starts[:_MAX_CONFIRMED]):
        window = scan.text[max(0, start - _MARGIN) : start + _MARGIN]
        if ftfy.fix_encoding(window) != window:
            return Hits(len(starts) - nth, start)
    return None


def _repair(scan: Scan) -> str:
    # line by line: one that cannot be decoded as a whole must not keep the others from it
    return "\n".join(ftfy.fix_encoding(line) for line in scan.text.split("\n"))


RULES = (
    Rule(
        "mojibake",
        "low",
        "UTF-8 that somebody decoded in a legacy encoding, so that accents, quotes or whole words "
        "are strings of symbols.",
        _find,
        repair=_repair,
        repair_summary="decodes it again, with ftfy, line by line",
    ),
)
