"""Attention under one softmax over several runs of keys, against the plain formula."""

import pytest
import torch

from engine.ragged import RaggedPass, Run
from engine.ragged_attention import Part, attend, ragged_attention
from engine.ragged_store import RowStore
from engine.unsupported import Unsupported


class Layer(torch.nn.Module):
    """A layer of attention, as the registered function sees it."""

    layer_idx = 0


@pytest.mark.parametrize("sinks", [False, True])
def test_parts_share_one_softmax(sinks: bool) -> None:
    """Two runs of keys and a sink are attended as their concatenation is; 4 heads share 2."""
    torch.manual_seed(0)
    query = torch.randn(2, 4, 3, 8)
    keys, values = torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    mask = torch.rand(2, 3, 7) < 0.7
    mask[..., 0] = True
    sink = torch.randn(4) if sinks else None

    parts = [
        Part(keys[:, :, part], values[:, :, part], mask[..., part])
        for part in (slice(0, 5), slice(5, 7))
    ]
    got = attend(query, parts, 0.5, sink)

    scores = query @ keys.repeat_interleave(2, 1).transpose(-1, -2) * 0.5
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink.view(1, 4, 1, 1).expand(2, 4, 3, 1)], -1)
    expected = scores.softmax(-1)[..., :7] @ values.repeat_interleave(2, 1)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("window", [None, 5])
def test_chunks_and_single_tokens_see_what_a_whole_prompt_sees(window: int | None) -> None:
    """However a row's tokens come, its last token attends to the same keys."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 19, 8)
    outs = []
    for cuts in ([19], [4, 11, 3, 1], [1, 17, 1]):
        store, past, out = RowStore(), 0, torch.empty(0)
        store.admit(1, 19)
        for count in cuts:
            ragged = RaggedPass(store, [Run(0, 0, count, past)], count == 1, torch.device("cpu"))
            now = slice(past, past + count)
            out, _ = ragged_attention(
                Layer(),
                query[:, :, now],
                key[:, :, now],
                value[:, :, now],
                None,
                sliding_window=window,
                ragged=ragged,
            )
            past += count
        outs.append(out[0, -1])

    torch.testing.assert_close(outs[0], outs[1])
    torch.testing.assert_close(outs[0], outs[2])


def test_what_is_not_built_is_refused() -> None:
    """An argument that would change attention is never dropped silently."""
    ragged = RaggedPass(RowStore(), [Run(0, 0, 2, 0)], False, torch.device("cpu"))
    one = torch.zeros(1, 1, 2, 8)

    with pytest.raises(Unsupported, match="softcap"):
        ragged_attention(Layer(), one, one, one, None, ragged=ragged, softcap=30.0)
    with pytest.raises(Unsupported, match="keyword"):
        ragged_attention(Layer(), one, one, one, None)
