"""The bytes that each token of a byte-level vocabulary stands for.

Decides which vocabularies can be read so; with them a token's place in its text is a sum, where the
tokenizers library would have to tokenise the text once more. May import tokenizers and numpy.

Source: the byte alphabet is that of GPT-2's `bytes_to_unicode`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from preprocess.base import Offsets, Tokens

#: Tokens that are compared with the text in one go: bounds what is held besides.
_AT_ONCE = 65_536
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(0x100) if byte not in _PRINTABLE]
#: The letter that stands for each byte.
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte for number, byte in enumerate(_OTHERS)
}


class TokenBytes:
    """The bytes of each token, by its id.

    Cost: a second for a vocabulary of a million tokens.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        added = {number: str(token.content) for number, token in _added(tokenizer)}
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self._table = [b""] * (max(vocabulary.values(), default=-1) + 1)
        for word, number in vocabulary.items():
            self._table[number] = added[number].encode() if number in added else _bytes(word)
        self._lengths = np.array([len(part) for part in self._table], dtype=np.int64)
        #: Bytes of the longest token.
        self.longest = int(self._lengths.max(initial=1))

    def locate(self, text: str, tokens: Tokens) -> Offsets | None:
        """Return which characters each token stands for; None if they do not spell the text.

        Cost: some 50 ns a byte.
        """
        data = text.encode()
        ends = np.cumsum(self._lengths[tokens], dtype=np.int64)
        at = 0
        for first in range(0, len(tokens), _AT_ONCE):
            part = b"".join([self._table[number] for number in tokens[first:][:_AT_ONCE].tolist()])
            if data[at : at + len(part)] != part:
                return None
            at += len(part)
        return characters_of(data, ends) if at == len(data) else None


def is_byte_level(fields: dict[str, Any]) -> bool:
    """Whether a `tokenizer.json` turns a text's own bytes into tokens, whatever it normalises."""
    decoder = fields.get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in decoder.get("decoders") or [decoder])


def characters_of(data: bytes, ends: NDArray[np.int64]) -> Offsets:
    """Return the characters to which bytes belong that end at `ends`, one piece behind the other.

    Args:
        data: A text in UTF-8.
        ends: Where each piece ends, in bytes; the last at the end of the text.
    """
    is_first = (np.frombuffer(data, dtype=np.uint8) & 0xC0) != 0x80
    # [bytes + 1]: characters that begin before each byte
    begun = np.concatenate([[0], np.cumsum(is_first)])
    first = np.concatenate([[0], ends])[:-1]
    # a piece that begins inside a character belongs to it as well
    inside = ~np.append(is_first, True)[first]
    offsets: Offsets = np.stack([begun[first] - inside, begun[ends]], axis=1).astype(np.uint32)
    return offsets


def _added(tokenizer: tokenizers.Tokenizer) -> Sequence[tuple[int, tokenizers.AddedToken]]:
    return list(tokenizer.get_added_tokens_decoder().items())


def _bytes(word: str) -> bytes:
    try:
        return bytes(map(_BYTES.__getitem__, word))
    except KeyError:  # a token that no text produces
        return word.encode()
