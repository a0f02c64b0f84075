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

    Every chunk but the last is full, and a row's pieces are in order, at most one in each chunk:
    a prompt is cut where a chunk ends, because a part of a prompt costs little more than a whole
    one, while a chunk that is not full wastes the speed of large matrix products.
    """
    chunks: list[list[Piece]] = []
    free = 0
    for index, length in enumerate(lengths):
        start = 0
        while start < length:
            if not free:
                chunks.append([])
                free = chunk_tokens
            end = min(length, start + free)
            chunks[-1].append(Piece(index, start, end))
            free -= end - start
            start = end
    return chunks
