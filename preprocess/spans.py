"""Which tokens stand for which characters, and what is left of them when ranges are kept.

Decides where a token sequence can be cut without breaking a character, and how kept ranges become
tokens again: the document's own where they can be, so that nothing is tokenised twice. May import
numpy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from preprocess.base import Tokenizer, Tokens

#: Characters of a text that are kept or dropped, [start, end).
Range = tuple[int, int]


class Spans:
    """A text with its tokens.

    Cost: some 40 ns a character to make.
    """

    def __init__(self, text: str, tokens: Tokens, tokenizer: Tokenizer) -> None:
        self.text = text
        self.tokens = tokens
        self._tokenizer = tokenizer
        offsets = tokenizer.locate(text, tokens).astype(np.int64)
        # whatever a normaliser did to the order, a cut must have one place
        ends = np.concatenate([[0], np.maximum.accumulate(offsets[:, 1])])
        starts = np.minimum.accumulate(np.concatenate([offsets[:, 0], [len(text)]])[::-1])[::-1]
        ends[-1] = len(text)
        #: [T + 1]: characters that are whole in the tokens before, and in the tokens behind
        self._whole_before = np.minimum(ends, starts)
        self._whole_behind = np.maximum(ends, starts)
        #: Cuts between two tokens that break no character: the tokens before, the characters before
        self._num_before = np.flatnonzero(ends <= starts)
        self._at = ends[self._num_before]

    def place_before(self, num_tokens: int) -> int:
        """Return up to where the first tokens hold whole characters."""
        return int(self._whole_before[min(num_tokens, len(self.tokens))])

    def place_behind(self, num_tokens: int) -> int:
        """Return from where all tokens but the first hold whole characters."""
        return int(self._whole_behind[min(num_tokens, len(self.tokens))])

    def cut_before(self, place: int) -> int:
        """Return the last place up to this one that lies between two tokens."""
        return int(self._at[self._cut(np.array([place]))[0]])

    def cut_behind(self, place: int) -> int:
        """Return the first place from this one on that lies between two tokens."""
        return int(self._at[np.searchsorted(self._at, place)])

    def counts(self, places: Sequence[int]) -> list[int]:
        """Return how many whole tokens lie before each place."""
        found: list[int] = self._num_before[self._cut(np.asarray(places, dtype=np.int64))].tolist()
        return found

    def keep(self, ranges: Sequence[Range]) -> Tokens | None:
        """Return the tokens of what lies in these ranges; None if they cannot be had.

        Tokens of the document up to the first place inside one; the rest is tokenised anew.
        """
        kept = [self.tokens[:0]]
        for number, (start, end) in enumerate(ranges):
            first, last = self._cut(np.array([start, end]))
            at = start
            if int(self._at[first]) == start:
                kept.append(self.tokens[self._num_before[first] : self._num_before[last]])
                at = int(self._at[last])
            if at != end:
                rest = "".join(self.text[slice(*item)] for item in ranges[number + 1 :])
                tokens = self._tokenizer.encode_documents([self.text[at:end] + rest])[0]
                return None if tokens is None else np.concatenate([*kept, tokens])
        return np.concatenate(kept)

    def _cut(self, places: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the last cut at or before each place."""
        return np.searchsorted(self._at, places, side="right") - 1
