"""One look at every character of a text: which classes occur, and where.

Decides which characters belong to which class; what that means is decided by the rules. A text of a
megabyte is classified in some 2 ms, so that most rules cost nothing on most texts. May import
numpy.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]
Points = NDArray[np.uint32]


class Mark:
    """The classes, as bits; a character may belong to several. Plain numbers: an enum is slow."""

    CONTROL = 1 << 0  # C0 but what text files use, DEL, C1 but NEL
    SURROGATE = 1 << 1
    NONCHARACTER = 1 << 2
    PRIVATE = 1 << 3
    BIDI = 1 << 4  # embeddings, overrides, isolates and their ends; not LRM, RLM and ALM
    TAG = 1 << 5
    VARIATION = 1 << 6
    ZERO_WIDTH = 1 << 7
    STACKING = 1 << 8  # combining marks that belong to no one script
    SPACE = 1 << 9
    BREAK = 1 << 18  # what ends a paragraph
    IGNORABLE = 1 << 19  # invisible, and harmless by themselves
    CODED = 1 << 10  # the alphabets of base64 and of hexadecimal digits
    LATIN = 1 << 11
    GREEK = 1 << 12
    CYRILLIC = 1 << 13
    LOOKALIKE = 1 << 14  # letters with a twin in another of the three scripts
    COMPATIBLE = 1 << 15  # NFKC makes it an ASCII letter or bracket
    LEAD = 1 << 16  # what the first byte of a UTF-8 sequence becomes in a legacy encoding
    CONTINUATION = 1 << 17  # and what the later ones become


LETTERS = Mark.LATIN | Mark.GREEK | Mark.CYRILLIC
#: What nobody sees, and what may therefore stand inside of a word that is to be hidden.
_UNSEEN = Mark.ZERO_WIDTH | Mark.TAG | Mark.VARIATION | Mark.BIDI | Mark.IGNORABLE

_RANGES: dict[int, str] = {
    Mark.CONTROL: "00-06 0e-1a 1c-1f 7f-84 86-9f",
    Mark.SURROGATE: "d800-dfff",
    Mark.NONCHARACTER: "fdd0-fdef "
    + " ".join(f"{plane << 16 | 0xFFFE:x}-{plane << 16 | 0xFFFF:x}" for plane in range(17)),
    Mark.PRIVATE: "e000-f8ff f0000-ffffd 100000-10fffd",
    Mark.BIDI: "202a-202e 2066-2069",
    Mark.TAG: "e0000-e007f",
    Mark.IGNORABLE: "ad 61c 200e-200f 2061-2064",
    Mark.VARIATION: "fe00-fe0f e0100-e01ef",
    Mark.ZERO_WIDTH: "180e 200b-200d 2060 feff",
    Mark.STACKING: "300-36f 483-489 1ab0-1aff 1dc0-1dff 20d0-20ff fe20-fe2f",
    Mark.SPACE: "9-d 1c-20 85 a0 1680 2000-200a 2028-2029 202f 205f 3000",
    Mark.BREAK: "a d 1c-1e 85 2029",
    Mark.CODED: "2b 2f 30-39 41-5a 61-7a",
    Mark.LATIN: "41-5a 61-7a c0-d6 d8-f6 f8-24f 1e00-1eff",
    Mark.GREEK: "370-373 376-377 37b-37d 37f 386 388-3ff 1f00-1fff",
    Mark.CYRILLIC: "400-481 48a-52f",
    Mark.LEAD: "c2-f4 412 413 420 421 432 221a 201a",
    Mark.CONTINUATION: "80-bf",
}
#: Letters that a reader takes for one of another script: Latin, Cyrillic, Greek. Greek ones that
#: formulas use beside Latin letters (alpha, nu, rho, …) are left out.
_LOOKALIKES = "acehijopsxyABCEHIJKMOPSTXYqwdlvNZUIасеһіјорѕхуАВСЕНІЈКМОРЅТХУԛԝԁӏѵοιϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
_LEGACY = ("cp1252", "cp1251")
#: Where characters stand that NFKC makes into ASCII: letter-like, enclosed, half- and full-width.
_COMPATIBILITY_BLOCKS = "2100-214f 2160-217f 24b6-24e9 fe50-fe6f ff01-ff5e 1d400-1d7ff 1f110-1f189"


def _code_points(ranges: str) -> Iterator[range]:
    for item in ranges.split():
        first, _, last = item.partition("-")
        yield range(int(first, 16), int(last or first, 16) + 1)


#: The ASCII letter or bracket that a character stands for.
_PLAIN = {
    point: ord(plain)
    for span in _code_points(_COMPATIBILITY_BLOCKS)
    for point in span
    if re.fullmatch(r"[A-Za-z<>\[\]{}|_]", plain := unicodedata.normalize("NFKC", chr(point)))
}


def _table() -> NDArray[np.uint32]:
    """Return the marks of every code point."""
    table = np.zeros(0x110000, dtype=np.uint32)
    for mark, ranges in _RANGES.items():
        for span in _code_points(ranges):
            table[span.start : span.stop] |= np.uint32(mark)
    later_bytes = (bytes(range(0x80, 0xC0)).decode(encoding, "ignore") for encoding in _LEGACY)
    table[[ord(character) for character in _LOOKALIKES]] |= np.uint32(Mark.LOOKALIKE)
    table[[ord(character) for character in "".join(later_bytes)]] |= np.uint32(Mark.CONTINUATION)
    table[list(_PLAIN)] |= np.uint32(Mark.COMPATIBLE)
    return table


_TABLE = _table()
_PLAIN_TABLE = np.zeros(0x110000, dtype=np.uint8)
_PLAIN_TABLE[list(_PLAIN)] = list(_PLAIN.values())
_NOWHERE: Positions = np.empty(0, dtype=np.int64)


def _small_letters() -> NDArray[np.uint32]:
    """Return the small letter of every code point; of the one that has two, the first."""
    table = np.arange(0x110000, dtype=np.uint32)
    for point in range(0x1F000):  # nothing above has letter case
        table[point] = ord(chr(point).lower()[0])
    return table


_SMALL_LETTERS = _small_letters()


class Scan:
    """A text with the marks of its characters.

    Args:
        text: Any text, lone surrogates included.
        spells_control_token: Whether a text spells out a control token of the model.
    """

    def __init__(self, text: str, spells_control_token: Callable[[str], bool]) -> None:
        self.text = text
        self.spells_control_token = spells_control_token
        self.points: NDArray[np.unsignedinteger] = (
            np.frombuffer(text.encode("ascii"), dtype=np.uint8)
            if text.isascii()
            else np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        )
        self.marks = _TABLE.take(self.points, mode="clip")
        self.present = int(np.bitwise_or.reduce(self.marks, initial=0))

    def mask(self, mark: int) -> Mask:
        """Return, for each character, whether it belongs to one of the classes."""
        mask: Mask = (self.marks & np.uint32(mark)) != 0
        return mask

    def positions(self, mark: int) -> Positions:
        """Return where characters of these classes stand, in order."""
        if not self.present & mark:
            return _NOWHERE
        return np.flatnonzero(self.mask(mark))

    @cached_property
    def folded(self) -> str:
        """The text as a reader sees it: without what is invisible, in plain letters and brackets.

        The very same object as `text` where that makes no difference to ASCII letters.
        """
        if not self.present & (_UNSEEN | Mark.COMPATIBLE):
            return self.text
        return _text(self._folded_points)

    @cached_property
    def lowered(self) -> str:
        """`folded` in lower case, character for character."""
        if self.text.isascii():
            return self.folded.lower()
        return _text(_SMALL_LETTERS.take(self._folded_points, mode="clip"))

    @cached_property
    def _folded_points(self) -> Points:
        points = self.points.astype("<u4")
        plain = self.positions(Mark.COMPATIBLE)
        points[plain] = _PLAIN_TABLE[points[plain]]
        return points[self._seen] if self.present & _UNSEEN else points

    @cached_property
    def _seen(self) -> Positions:
        return np.flatnonzero(~self.mask(_UNSEEN))

    def origin(self, at: int) -> int:
        """Return the character of `text` from which character `at` of `folded` came."""
        return int(self._seen[at]) if self.present & _UNSEEN else at


def _text(points: Points) -> str:
    return points.tobytes().decode("utf-32-le", "surrogatepass")


def runs(mask: Mask, min_len: int) -> tuple[Positions, Positions]:
    """Return the starts and the ends of all runs of True that are at least so long."""
    half = max(1, min_len // 2)  # any such run covers a whole block of half its length
    blocks = mask[: len(mask) // half * half].reshape(-1, half)
    if len(mask) < min_len or not blocks.all(axis=1).any():
        return _NOWHERE, _NOWHERE
    padded = np.zeros(len(mask) + 2, dtype=np.bool_)
    padded[1:-1] = mask
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    starts, ends = edges[::2], edges[1::2]
    is_long = ends - starts >= min_len
    return starts[is_long], ends[is_long]


def replace(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with other strings in place of some spans, which stand in order."""
    kept: list[str] = []
    done = 0
    for start, end, replacement in spans:
        kept += (text[done:start], replacement)
        done = end
    return "".join((*kept, text[done:]))
