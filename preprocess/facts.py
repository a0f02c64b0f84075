"""What two documents must have in common for one's answer to stand for the other's.

Decides what counts as a number, a name or a date, and as a denial: everything that is not plainly
an ordinary word. That errs on the safe side: two documents of equal facts say the same but for
ordinary words, spaces and punctuation; two of unequal facts may do so too. Counted are

- words with a digit, a symbol or a sign inside, and the word that follows a number (its unit);
- words with a capital letter, because names have one; at the start of a sentence too, unless the
  word is a common one that sentences begin with;
- words in scripts without capitals: every one, since nothing tells which of them are names;
- all words of a sentence that begins with a small letter, for the same reason;
- the words of `preprocess.fact_words`.

Not seen are a name written small in a sentence that begins with a capital, a number word of a
language without a list, and ordinary words that change what is said ("rose" for "fell"). May import
blake3 and `preprocess.fact_words`.
"""

# ruff: noqa: RUF001 - signs that look alike are meant

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from blake3 import blake3

from preprocess.fact_words import FACT_WORDS, OPENERS

_DIGEST_BYTES = 16
#: What may stand around a word and says nothing about it; but see `_bare`.
_AROUND = ".,;:!?…·•*_|\"'`‟‚«»‹›()[]{}-¿¡،؛؟۔।॥。、，．：；！？「」『』（）【】《》〈〉"
_ENDS_SENTENCE = re.compile(r"[.!?…。！？।؟۔][\"')\]*_»]*$")
_SAME = str.maketrans("’‘ʼ“”„–—‐‑−", "'''\"\"\"-----")
_LETTERS = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_JOINTS = re.compile("['-]")
_UNIT = re.compile(r"[-'\"]*")
#: Between characters of scripts without spaces a line may end anywhere.
_UNSPACED = (
    "[\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u9fff\uf900-\ufaff\U00020000-\U0003347f]"
)
_BREAK = re.compile(rf"\n(?:(?<={_UNSPACED}\n)|(?={_UNSPACED}))")
_PAUSES = re.compile("[。、，．！？；：「」『』（）【】《》〈〉・]+")
#: A line that was broken for its length goes on in the next one; others end what they say.
_BROKEN_LEN = range(40, 121)
#: Endings that may tell a number word, as in "zweiundzwanzig".
_ENDING_LENS = range(4, 11)
#: Longer words are hardly ordinary, and not worth a place among those that are known.
_MAX_KNOWN_LEN = 48


class _Word(NamedTuple):
    """What a word is to the facts; `fact` is how it is compared, '' for punctuation."""

    fact: str
    is_fact: bool
    is_opener: bool
    is_number: bool
    is_small: bool
    ends_sentence: bool


def facts(text: str) -> bytes:
    """Return 16 bytes that differ for two texts whenever their numbers, names or dates do.

    The order counts.

    Args:
        text: In canonical form, or texts that differ in form alone may have different facts.

    Cost: some 50 ns a character of prose; of ten times that where no word occurs twice.
    """
    joined = _BREAK.sub("", "\n".join(_facts(text)))
    return blake3(joined.encode("utf-8", "surrogatepass")).digest(length=_DIGEST_BYTES)


def _facts(text: str) -> Iterator[str]:
    at_start, all_count, after_number = True, False, False
    for line in text.split("\n"):
        words = [_known(raw) if len(raw) <= _MAX_KNOWN_LEN else _word(raw) for raw in line.split()]
        if not words or words[0].fact == "":  # a blank line, or a bullet
            at_start = True
        for word in words:
            if word.fact:
                if at_start:
                    all_count = word.is_small
                is_fact = word.is_fact and not (at_start and word.is_opener)
                if is_fact or all_count or after_number:
                    yield word.fact
                at_start, after_number = False, word.is_number
            at_start = at_start or word.ends_sentence
        at_start = at_start or len(line) not in _BROKEN_LEN or line.endswith(":")


def _word(raw: str) -> _Word:
    raw = raw.translate(_SAME)
    fact = _PAUSES.sub("", _bare(raw))
    return _Word(
        fact=fact,
        is_fact=len(fact) > _MAX_KNOWN_LEN or not _is_ordinary(fact),
        is_opener=fact.istitle() and fact.lower() in OPENERS,
        is_number=any(map(str.isnumeric, fact)),
        is_small=fact[:1].islower(),
        ends_sentence=_ENDS_SENTENCE.search(raw) is not None,
    )


_known = lru_cache(maxsize=1 << 15)(_word)


def _bare(word: str) -> str:
    """Return the word without what stands around it, but with what changes a number or a grade."""
    left = word.lstrip(_AROUND + "#")
    bare = left.rstrip(_AROUND)
    if bare == "":
        return ""
    before, after = word[: len(word) - len(left)], left[len(bare) :]
    if not bare[0].isalpha():  # -5 and .5 are not 5
        bare = before[len(before.rstrip("-.,")) :] + bare
    if not bare[-1].isalpha() and (unit := _UNIT.match(after)):  # 5' is not 5"
        bare += unit[0]
    elif bare.isupper() and after.startswith("-"):  # nor is B- a B
        bare += "-"
    return bare


def _is_ordinary(fact: str) -> bool:
    """Whether this is a word in small letters that carries no number, date or denial."""
    if not (fact.islower() and _LETTERS.fullmatch(fact)):
        return False
    parts = _JOINTS.split(fact)
    if not (fact.isascii() or all(map(str.islower, "".join(parts)))):
        return False  # letters without capitals among small ones
    if fact in FACT_WORDS or not FACT_WORDS.isdisjoint(parts):
        return False
    if len(fact) == 1 and fact not in OPENERS:
        return False  # "part b"
    return not any(part[-length:] in FACT_WORDS for part in parts for length in _ENDING_LENS)
