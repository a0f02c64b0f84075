"""How prompts are cut into chunks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.prefill import Piece, plan_chunks


def size_of(piece: Piece) -> int:
    """Return how many tokens a piece has."""
    return piece.end - piece.start


def test_short_prompts_share_a_chunk_and_long_ones_are_cut() -> None:
    """The rest of a cut prompt shares its chunk with whoever fits."""
    chunks = plan_chunks([3, 2, 6, 2, 3], 5)

    assert [
        [Piece(0, 0, 3), Piece(1, 0, 2)],
        [Piece(2, 0, 5)],
        [Piece(2, 5, 6), Piece(3, 0, 2)],
        [Piece(4, 0, 3)],
    ] == chunks


@given(st.lists(st.integers(1, 40), max_size=12), st.integers(1, 50))
def test_every_token_is_computed_once_and_in_order(lengths: list[int], chunk_tokens: int) -> None:
    """Pieces cover each prompt without gaps, and no chunk holds too many tokens."""
    chunks = plan_chunks(lengths, chunk_tokens)

    sizes = [sum(map(size_of, chunk)) for chunk in chunks]
    assert sum(lengths) == sum(sizes)
    assert all(0 < size <= chunk_tokens for size in sizes)
    # neighbours would not have fitted into one chunk
    assert all(sizes[at] + size_of(chunk[0]) > chunk_tokens for at, chunk in enumerate(chunks[1:]))
    pieces = [piece for chunk in chunks for piece in chunk]
    assert all(piece.start < piece.end for piece in pieces)
    for before, after in pairwise(pieces):
        joined = after.index == before.index and after.start == before.end
        begins = after.index == before.index + 1 and not after.start
        assert joined or (begins and before.end == lengths[before.index])
