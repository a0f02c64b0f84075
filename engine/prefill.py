"""Which prompt tokens are computed together.

Decides how prompts are cut into chunks of bounded size; pure, knows lengths only. May import the
standard library alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens `start` to `end` of the prompt of row `index`."""

    index: int
    start: int
    end: int


def plan_chunks(lengths: Sequence[int], chunk_tokens: int) -> list[list[Piece]]:
    """Cut prompts, in order, into chunks of at most `chunk_tokens` tokens.

    Only a prompt longer than a chunk is cut, since a part that is not the first has to be masked,
    which costs twice the attention. A row's pieces are in order, at most one in each chunk.
    """
    chunks: list[list[Piece]] = []
    free = 0
    for index, length in enumerate(lengths):
        for start in range(0, length, chunk_tokens):
            end = min(length, start + chunk_tokens)
            if end - start > free:
                chunks.append([])
                free = chunk_tokens
            chunks[-1].append(Piece(index, start, end))
            free -= end - start
    return chunks
