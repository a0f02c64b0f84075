"""A tokenizer that costs almost nothing, for the fake engine: four bytes of text are one token.

May import numpy.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from preprocess.base import ChatMessage, Offsets, Tokens
from preprocess.token_bytes import characters_of


class FakeTokenizer:
    """Reads UTF-8 as little-endian uint32, padded with zero bytes. Has no template, no controls."""

    def encode_documents(self, texts: Sequence[str]) -> list[Tokens | None]:
        """Return a view of each text's bytes; see `preprocess.base.Tokenizer`."""
        return [_view(text) for text in texts]

    def locate(self, text: str, tokens: Tokens) -> Offsets:
        """Return the characters whose bytes each token holds."""
        data = text.encode()
        ends = np.minimum(np.arange(1, len(tokens) + 1) * 4, len(data))
        return characters_of(data, ends)

    def fewest_tokens(self, text: str) -> int:
        """Return the number of tokens: it is known at once."""
        return -(-len(text.encode()) // 4)

    def encode_piece(
        self, text: str, *, is_template: bool, precedes_document: bool
    ) -> Tokens | None:
        """Return a view of the text's bytes."""
        return _view(text)

    def render_chat(self, messages: Sequence[ChatMessage], moment: datetime) -> str | None:
        """Return None: prompts are plain concatenations."""
        return None

    def start_tokens(self) -> Tokens:
        """Return nothing."""
        return np.empty(0, dtype=np.uint32)

    def spells_control_token(self, text: str) -> bool:
        """Return False: there are none."""
        return False


def _view(text: str) -> Tokens:
    data = text.encode()
    return np.frombuffer(data + bytes(-len(data) % 4), dtype="<u4")
