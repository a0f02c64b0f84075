"""From token ids to text, and where a stop string ends it.

Decides what of an answer is text: control tokens are not, nor is a character whose last bytes were
never generated. May import nothing but engine-independent code; the tokenizer is passed in.
"""

from collections.abc import Sequence
from typing import Any

#: What decoders put where bytes do not form a character (yet).
_BROKEN = "\ufffd"


class Detokenizer:
    """Decodes answers with a transformers tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._genuine: list[int] = tokenizer.encode(_BROKEN, add_special_tokens=False)
        self._letter: list[int] = tokenizer.encode("a", add_special_tokens=False)
        self._characters: dict[int, str] = {}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a run of tokens, unfinished characters included."""
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def characters(self, token: int) -> str:
        """Return every character that a token may bring, a broken one for parts of characters.

        Some decoders drop the space before the first word of a text, so the token is decoded alone
        and behind a letter. Cost: two short decodes, once for each token of the vocabulary.
        """
        known = self._characters.get(token)
        if known is None:
            behind = self.decode([*self._letter, token])[len(self.decode(self._letter)) :]
            known = self._characters[token] = self.decode([token]) + behind
        return known

    def final(self, ids: Sequence[int]) -> str:
        """Return the text of a whole answer, less a character that was cut at its end."""
        text = self.decode(ids)
        if not text.endswith(_BROKEN) or list(ids[-len(self._genuine) :]) == self._genuine:
            return text
        return text.rstrip(_BROKEN)


class StopScanner:
    """Watches an answer grow and says when a stop string has appeared.

    Text is decoded only at tokens that may end a stop string; a character still lacking bytes is
    held back until it is whole.
    """

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._longest = max(map(len, stops))
        self._ends = {stop[-1] for stop in stops} | {_BROKEN}
        self._ids: list[int] = []
        self._context, self._read = 0, 0  # tokens before them are decoded, or were read as text
        self._tail = ""  # the end of the text, in which a match may have begun
        self._held_back = False

    def push(self, token: int) -> bool:
        """Take the next token; return whether the answer now holds a stop string."""
        self._ids.append(token)
        if not self._held_back and self._ends.isdisjoint(self._detokenizer.characters(token)):
            return False
        before = self._detokenizer.decode(self._ids[self._context : self._read])
        now = self._detokenizer.decode(self._ids[self._context :])
        self._held_back = now.endswith(_BROKEN)
        if len(now) <= len(before) or self._held_back:
            return False
        self._context, self._read = self._read, len(self._ids)
        text = self._tail + now[len(before) :]
        self._tail = text[max(0, len(text) - self._longest + 1) :]
        return cut_at(text, self._stops) is not None


def cut_at(text: str, stops: Sequence[str]) -> int | None:
    """Return where the earliest stop string begins; None if there is none."""
    return min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
