"""A tokenizer that costs almost nothing, for the fake engine: four bytes of text are one token.

May import numpy.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from preprocess.base import ChatMessage, Offsets, Tokens


class FakeTokenizer:
    """Reads UTF-8 as little-endian uint32, padded with zero bytes. Has no template, no controls."""

    def encode_documents(self, texts: Sequence[str]) -> list[Tokens | None]:
        """Return a view of each text's bytes; see `preprocess.base.Tokenizer`."""
        return [_view(text) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[Tokens, Offsets]:
        """Return the tokens, and the characters whose bytes each holds."""
        tokens = _view(text)
        # the character to which each byte belongs, and one beyond the end for the padding
        widths = [len(character.encode()) for character in text]
        owners = np.repeat(np.arange(len(text), dtype=np.uint32), widths)
        starts = owners[::4]
        ends = owners[np.minimum(np.arange(3, 4 * len(tokens), 4), len(owners) - 1)] + 1
        return tokens, np.stack([starts, ends], axis=1).astype(np.uint32)

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
