"""The index arithmetic of a pass over rows of unequal length, against plain Python."""

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.ragged import RaggedPass, Run, Windows
from engine.ragged_store import RowStore

CPU = torch.device("cpu")


def lay_out(parts: list[tuple[int, int, int]], decoding: bool = False) -> RaggedPass:
    """Return a pass of (row, past, tokens) parts."""
    runs, start = [], 0
    for row, past, tokens in parts:
        runs.append(Run(row, start, start + tokens, past))
        start += tokens
    return RaggedPass(RowStore(), runs, decoding, CPU)


def values(row: int, first: int, last: int) -> Tensor:
    """Return tokens whose value says whose they are and where they stand."""
    return (row * 1000.0 + torch.arange(first, last))[:, None]


def ring_of(num_rows: int, size: int, pasts: dict[int, int]) -> Tensor:
    """Return rings as rows that have seen so many tokens leave them."""
    ring = torch.zeros(num_rows, size, 1)
    for row, past in pasts.items():
        for position in range(past):
            ring[row, position % size] = row * 1000 + position
    return ring


def test_positions_go_on_from_each_rows_past() -> None:
    """Each run begins where its row has got to."""
    ragged = lay_out([(0, 5, 3), (2, 0, 2)])

    assert [5, 6, 7, 0, 1] == ragged.positions.tolist()


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 11])
@pytest.mark.parametrize("past", [0, 2, 4, 9])
def test_a_ring_keeps_the_last_tokens(past: int, tokens: int) -> None:
    """Whatever a pass adds, a ring is as if its row had come token by token."""
    ragged = lay_out([(1, past, tokens), (0, 3, 2)])
    ring = ring_of(2, 4, {0: 3, 1: past})

    ragged.keep(ring, torch.cat([values(1, past, past + tokens), values(0, 3, 5)]))

    assert torch.equal(ring_of(2, 4, {0: 5, 1: past + tokens}), ring)


def test_what_came_before_a_run_is_read_in_order() -> None:
    """The ring is unrolled: the oldest of the last tokens first, and no more than there are."""
    ragged = lay_out([(1, 6, 2)])
    ring = ring_of(2, 4, {1: 6})
    run = ragged.runs[0]

    assert torch.equal(values(1, 3, 6), ragged.before(ring, run, 3))
    assert torch.equal(values(1, 0, 6), ragged.before(ring_of(2, 8, {1: 6}), run, None))


@pytest.mark.parametrize("decoding", [False, True])
@pytest.mark.parametrize("overlap", [1, 2])
@pytest.mark.parametrize("pasts", [(0, 3), (3, 7), (7, 1), (4, 11)], ids=str)
def test_windows_hold_their_own_tokens(
    pasts: tuple[int, int], overlap: int, decoding: bool
) -> None:
    """Every window that fills up is found once, with its tokens, wherever those lie."""
    rate, counts = 4, (1, 1) if decoding else (9, 2)
    size = rate * overlap
    ragged = lay_out([(row, pasts[row], counts[row]) for row in range(2)], decoding)
    fresh = torch.cat([values(row, pasts[row], pasts[row] + counts[row]) for row in range(2)])
    ring = ring_of(2, size, dict(enumerate(pasts)))

    windows = ragged.windows(rate, size)

    expected = [
        (row, number)
        for row in range(2)
        for number in range(pasts[row] // rate, (pasts[row] + counts[row]) // rate)
    ]
    if windows is None:
        assert not expected
        return
    found = list(zip(windows.rows.tolist(), windows.numbers.tolist(), strict=True))
    assert expected == found
    assert [number * rate for _, number in expected] == windows.starts.tolist()
    assert_tokens(windows, windows.collect(ring, fresh), expected, rate, overlap)


def assert_tokens(
    windows: Windows, source: Tensor, expected: list[tuple[int, int]], rate: int, overlap: int
) -> None:
    """Check what the windows point at, and with overlap the windows before them."""
    for index, (row, number) in enumerate(expected):
        first = number * rate
        own = values(row, first, first + rate)
        before = values(row, first - rate, first) if number else own
        assert torch.equal(own, source[windows.current[index]])
        assert (number == 0) == bool(windows.is_first[index])
        if overlap == 2 or not number:
            assert torch.equal(before, source[windows.previous[index]])


def test_a_pass_in_which_no_window_fills_has_none() -> None:
    """Most passes of one token have nothing to compress."""
    assert lay_out([(0, 4, 1), (1, 6, 1)], decoding=True).windows(4, 8) is None


def test_a_token_sees_itself_and_what_its_window_reaches() -> None:
    """The mask of a prompt's part, whose keys begin before it."""
    ragged = lay_out([(0, 3, 2)])

    mask = ragged.near(ragged.blocks[0], 3, first=1)

    keys, queries = np.arange(1, 5), np.arange(3, 5)[:, None]
    assert ((keys <= queries) & (keys > queries - 3)).tolist() == mask[0].tolist()


def test_a_token_sees_windows_that_have_ended() -> None:
    """A window counts from its last token on, for every row by its own position."""
    decode = lay_out([(0, 6, 1), (1, 7, 1), (2, 2, 1)], decoding=True)
    prompt = lay_out([(0, 0, 9)])

    seen = decode.closed(decode.blocks[0], 4)

    assert [[True, False], [True, True], [False, False]] == seen[:, 0].tolist()
    assert [0, 0, 0, 1, 1, 1, 1, 2, 2] == prompt.closed(prompt.blocks[0], 4)[0].sum(-1).tolist()


def test_long_prompts_are_cut_into_blocks() -> None:
    """Blocks cover each run once, in order, and never two rows."""
    ragged = lay_out([(0, 5, 600), (1, 0, 7)])

    spans = [(block.row, block.start, block.end, block.length) for block in ragged.blocks]

    assert [(0, 0, 256, 261), (0, 256, 512, 517), (0, 512, 600, 605), (1, 600, 607, 7)] == spans
