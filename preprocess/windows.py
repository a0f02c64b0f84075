"""Long texts in pieces that are tokenised one by one: bounds the memory that takes.

Decides where a text may be divided without changing its tokens. A tokenizer that works on bytes
first divides a text by a pattern, and every model's has a boundary in front of a single space
between two letters. Where there is none in half a window, as in text without spaces, one place in
each window is divided all the same and may have other tokens, never other text. May import nothing.
"""

import re
from collections.abc import Iterator

_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")


def windows(text: str, size: int) -> Iterator[str]:
    """Yield a text in pieces of at most `size` characters, at least half of that but for the last.

    Cost: linear in the text.
    """
    at = 0
    while len(text) - at > size:
        place = _BETWEEN_WORDS.search(text, at + (size + 1) // 2, at + size)
        end = place.start() if place else at + size
        yield text[at:end]
        at = end
    yield text[at:]
