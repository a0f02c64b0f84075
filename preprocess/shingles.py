"""A text as the set of its short word sequences, each a number: what near duplicates share.

Decides what a word is and how sequences are hashed. Case, punctuation and white space do not count.
In scripts that put no spaces between words each character is a word of its own, and so is a symbol
such as an emoji. The numbers are the same in every process. May import numpy.
"""

import unicodedata
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Codes = NDArray[np.uint8] | NDArray[np.uint32]

#: Words in a sequence: fewer and unrelated texts share some, more and a typo costs too many.
_WORDS = 5
#: Characters taken at once: bounds the memory, and how many powers are needed.
_BLOCK_LEN = 1 << 16
_MAX_FOLDED = 3  # characters that one may become when case is folded
_SEPARATOR, _IN_WORD, _ALONE = 0, 1, 2
#: Code points from here on are rare ideographs, and what belongs to no word.
_TABLE_LEN = 0x20000
#: Scripts without spaces: Thai to Tibetan, Myanmar, Khmer, and all of Chinese and Japanese.
_UNSPACED = (
    *((0x0E00, 0x1000), (0x1000, 0x10A0), (0x1780, 0x1800), (0x2E80, 0x2FE0), (0x3005, 0x30FB)),
    *((0x30FC, 0xA000), (0xF900, 0xFB00), (0xFF66, 0xFFA0), (0x1B000, 0x1B170)),
)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_STEP = np.uint64(0xBF58476D1CE4E5B9)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


def shingles(text: str) -> Hashes:
    """Return the hashes of all sequences of five words, [T]; of all words, if there are fewer.

    A text without words has none. Equal sequences stand as often as they occur.

    Cost: some 15 ns a character and 30 µs a call; memory for a number a word.
    """
    words = np.concatenate([_words(block) for block in _blocks(text)])
    length = min(_WORDS, len(words))
    if length == 0:
        return words
    num = len(words) - length + 1
    hashes = words[:num].copy()
    for first in range(1, length):
        hashes *= _STEP
        hashes += words[first : first + num]
    return _mixed(hashes)


def _blocks(text: str) -> Iterator[str]:
    """Yield the text in pieces, cut at white space where there is any."""
    max_len = _BLOCK_LEN // _MAX_FOLDED
    start = 0
    while len(text) - start > max_len:
        end = max(text.rfind(blank, start + 1, start + max_len) for blank in " \n")
        end = end if end > start else start + max_len
        yield text[start:end]
        start = end
    yield text[start:]


def _words(block: str) -> Hashes:
    """Return a hash for each word: a polynomial in its characters, modulo 2**64."""
    folded = block.casefold()
    if folded.isascii():
        codes: Codes = np.frombuffer(folded.encode(), np.uint8)
        starts, ends = _spans(codes)
    else:
        codes = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), "<u4")
        starts, ends = _spans(np.minimum(codes, np.uint32(_TABLE_LEN)))
    powers, inverses = _powers()
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * powers[: len(codes)], out=sums[1:])
    return (sums[ends] - sums[starts]) * inverses[starts]


def _spans(codes: Codes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where words start and end."""
    kinds = _kinds()[codes]
    is_within, is_alone = kinds == _IN_WORD, kinds == _ALONE
    opens, closes = is_within.copy(), is_within.copy()
    opens[1:] &= ~is_within[:-1]
    closes[:-1] &= ~is_within[1:]
    return np.flatnonzero(opens | is_alone), np.flatnonzero(closes | is_alone) + 1


def _mixed(hashes: Hashes) -> Hashes:
    """Return the hashes with every bit of theirs spread over all bits."""
    for _ in range(2):
        hashes ^= hashes >> _HALF
        hashes *= _MIX
    hashes ^= hashes >> _HALF
    return hashes


@cache
def _kinds() -> NDArray[np.uint8]:
    """Return what each code point is to a word. Cost: 50 ms, once."""
    kinds = np.full(_TABLE_LEN + 1, _ALONE, np.uint8)
    kinds[:_TABLE_LEN] = [_kind(unicodedata.category(chr(code))) for code in range(_TABLE_LEN)]
    for first, end in _UNSPACED:
        script = kinds[first:end]
        script[script == _IN_WORD] = _ALONE
    return kinds


def _kind(category: str) -> int:
    if category[0] in "LNM":  # letters, numbers, and marks on them
        return _IN_WORD
    return _ALONE if category == "So" else _SEPARATOR


@cache
def _powers() -> tuple[Hashes, Hashes]:
    """Return the powers of the base, and of its inverse, modulo 2**64."""
    inverse = pow(_BASE, -1, 1 << 64)
    return _powers_of(_BASE), _powers_of(inverse)


def _powers_of(base: int) -> Hashes:
    return np.cumprod(np.full(_BLOCK_LEN, base, np.uint64), dtype=np.uint64)
