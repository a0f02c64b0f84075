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

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a run of tokens, unfinished characters included."""
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def final(self, ids: Sequence[int]) -> str:
        """Return the text of a whole answer, less a character that was cut at its end."""
        text = self.decode(ids)
        if not text.endswith(_BROKEN) or list(ids[-len(self._genuine) :]) == self._genuine:
            return text
        return text.rstrip(_BROKEN)


class StopScanner:
    """Watches an answer grow and says when a stop string has appeared.

    Text is decoded a few tokens at a time; a character still lacking bytes is held back until it
    is whole.
    """

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._longest = max(map(len, stops))
        self._ids: list[int] = []
        self._context, self._read = 0, 0  # tokens before them are decoded, or were read as text
        self._tail = ""  # the end of the text, in which a match may have begun

    def push(self, token: int) -> bool:
        """Take the next token; return whether the answer now holds a stop string."""
        self._ids.append(token)
        before = self._detokenizer.decode(self._ids[self._context : self._read])
        now = self._detokenizer.decode(self._ids[self._context :])
        if len(now) <= len(before) or now.endswith(_BROKEN):
            return False
        self._context, self._read = self._read, len(self._ids)
        text = self._tail + now[len(before) :]
        self._tail = text[max(0, len(text) - self._longest + 1) :]
        return cut_at(text, self._stops) is not None


def cut_at(text: str, stops: Sequence[str]) -> int | None:
    """Return where the earliest stop string begins; None if there is none."""
    return min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
