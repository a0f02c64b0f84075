"""Attention arithmetic against a reference that forms every score."""

import pytest
import torch
from torch import Tensor

from engine.kernels import (
    additive,
    causal_mask,
    fused_causal,
    lane_attention,
    lane_mask,
    tiled_causal,
)

HEADS, KV_HEADS, DIM = 6, 2, 8


def reference(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attend [H, T, D] to [K, S, D] where `mask` [T, S] allows, in double precision."""
    group = query.shape[0] // keys.shape[0]
    keys, values = (each.double().repeat_interleave(group, 0) for each in (keys, values))
    scores = query.double() @ keys.transpose(1, 2) * DIM**-0.5
    attended: Tensor = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ values
    return attended.transpose(0, 1)


def tensors(num_queries: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries [1, H, T, D], keys and values [1, K, S, D]."""
    generator = torch.Generator().manual_seed(num_queries * 1000 + length)
    shapes = ((HEADS, num_queries), (KV_HEADS, length), (KV_HEADS, length))
    query, keys, values = (torch.randn(1, *shape, DIM, generator=generator) for shape in shapes)
    return query, keys, values


@pytest.mark.parametrize("num_queries", [1, 5, 128, 300])
@pytest.mark.parametrize("past", [0, 7])
@pytest.mark.parametrize("window", [None, 3])
def test_causal_kernels_agree_with_the_reference(
    num_queries: int, past: int, window: int | None
) -> None:
    """The last T of S tokens see themselves and what came before, within the window."""
    query, keys, values = tensors(num_queries, past + num_queries)
    mask = causal_mask(num_queries, past, window, query.device)
    expected = reference(query[0], keys[0], values[0], mask)

    got = [fused_causal(query, keys, values, additive(mask, query.dtype), None)]
    if window is None:
        got.append(tiled_causal(query, keys, values, None))
        if not past:
            got.append(fused_causal(query, keys, values, None, None))

    for each in got:  # fp32 rounding over at most 307 summands of order one
        assert torch.allclose(each.double(), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("lengths", [(4, 9, 6), (5, 5), (3,)])
def test_a_lane_attends_each_row_to_its_own_length(
    lengths: tuple[int, ...], window: int | None
) -> None:
    """Rows of one lane see their own tokens alone, whatever lies behind them."""
    longest = max(lengths)
    generator = torch.Generator().manual_seed(longest)
    query = torch.randn(HEADS, len(lengths), DIM, generator=generator)
    keys, values = torch.randn(2, len(lengths), KV_HEADS, longest, DIM, generator=generator)

    mask = additive(lane_mask(lengths, window, query.device), query.dtype)
    got = lane_attention(query, keys, values, mask, None)

    for index, length in enumerate(lengths):
        alone = causal_mask(1, length - 1, window, query.device)
        row = (query[:, index, None], keys[index, :, :length], values[index, :, :length])
        assert torch.allclose(got[index].double(), reference(*row, alone)[0], atol=2e-6)


def test_rows_of_equal_length_need_no_mask() -> None:
    """The mask is left out where it would allow everything."""
    assert lane_mask((5, 5), None, torch.device("cpu")) is None
    assert lane_mask((5, 5), 5, torch.device("cpu")) is None
    assert lane_mask((5, 5), 4, torch.device("cpu")) is not None
    assert lane_mask((5, 4), None, torch.device("cpu")) is not None
