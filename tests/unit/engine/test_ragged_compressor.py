"""The compressor that stands in transformers' place, against the one it replaces."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from engine.ragged import RaggedPass, Run
from engine.ragged_attention import Far
from engine.ragged_compressor import RaggedCompressor, best, can_replace
from engine.ragged_forward import RaggedCache
from engine.ragged_store import RowStore
from tests.support.tiny_model import tiny_deepseek_v4

#: The layers of the tiny model that compress: with an indexer and overlap, and without.
LAYERS = (1, 2)


@cache
def model() -> Any:
    """The tiny DeepSeek-V4, as transformers loads it."""
    return AutoModelForCausalLM.from_pretrained(tiny_deepseek_v4(), dtype=torch.float32).eval()


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """As the engine runs models."""
    with torch.inference_mode():
        yield


def inputs(length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return hidden states and residual queries of one row."""
    config = model().config
    generator = torch.Generator().manual_seed(seed)
    shapes = ((1, length, config.hidden_size), (1, length, config.q_lora_rank))
    hidden, residual = (torch.randn(shape, generator=generator) for shape in shapes)
    return hidden, residual


def whole(layer: int, length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return transformers' entries and mask for a row in one pass: [n, D], [T, n]."""
    positions = torch.arange(length)[None]
    held = DynamicCache(config=model().config)
    inner = model().model.layers[layer].self_attn.compressor
    entries, bias = inner(*inputs(length, seed), positions, held, layer)
    return entries[0, 0], None if bias is None else bias[0, 0] == 0


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("cuts", [(50, 70), (3, 16, 17), (15, 33, 1, 1, 64)], ids=str)
def test_rows_in_parts_make_the_entries_of_whole_rows(layer: int, cuts: tuple[int, ...]) -> None:
    """Two rows, cut differently and out of step, have the entries and the view of each alone."""
    lengths = (sum(cuts), sum(cuts) + 7)
    compressor = RaggedCompressor(model().model.layers[layer].self_attn.compressor)
    store = RowStore()
    store.admit(2, max(lengths))
    rows = [inputs(length, seed) for seed, length in enumerate(lengths)]
    seen: list[list[torch.Tensor]] = [[], []]
    pasts = [0, 0]
    entries = torch.empty(0)
    for counts in [(cut, cut) for cut in cuts] + [(0, 7)]:
        runs, start = [], 0
        for row, count in enumerate(counts):
            if count:
                runs.append(Run(row, start, start + count, pasts[row]))
                start += count
        ragged = RaggedPass(store, runs, all(c == 1 for c in counts), torch.device("cpu"))
        parts = [torch.cat([rows[r.row][i][:, r.past : r.length] for r in runs], 1) for i in (0, 1)]
        compressor(*parts, ragged.positions[None], RaggedCache(ragged), layer)
        far = ragged.far[layer]
        assert isinstance(far, Far)
        entries = far.entries
        for block, visible in zip(ragged.blocks, far.seen, strict=True):
            for index in range(block.num_rows):
                seen[block.row + index] += list(visible[index])
        pasts = [past + count for past, count in zip(pasts, counts, strict=True)]

    for row, length in enumerate(lengths):
        expected, mask = whole(layer, length, row)
        assert mask is not None
        # fp32 sums of the same products in another order
        torch.testing.assert_close(entries[row, : len(expected)], expected, rtol=1e-4, atol=1e-5)
        for at, token in zip(mask, seen[row], strict=True):
            assert at.nonzero().tolist() == token.nonzero().tolist()


def test_with_another_cache_it_is_what_it_replaces() -> None:
    """Transformers' own cache works as before."""
    inner = model().model.layers[1].self_attn.compressor
    positions = torch.arange(21)[None]

    got, _ = RaggedCompressor(inner)(
        *inputs(21, 0), positions, DynamicCache(config=model().config), 1
    )

    assert torch.equal(whole(1, 21, 0)[0], got[0, 0])


def test_the_first_of_equal_scores_are_best() -> None:
    """Which ones does not depend on what else is there."""
    scores = torch.tensor([[0.0, 2.0, 0.0, 0.0, 1.0, float("-inf")]])

    assert [0, 1, 2, 4] == best(scores, 4)[0].nonzero().flatten().tolist()
    assert [0, 1, 4] == best(scores[:, :5], 3)[0].nonzero().flatten().tolist()


def test_only_what_has_all_parts_of_a_compressor_is_replaced() -> None:
    """Looked at by its parts, not by its name."""
    assert all(can_replace(model().model.layers[layer].self_attn.compressor) for layer in LAYERS)
    assert not can_replace(model().model.layers[0].self_attn)
    assert not can_replace(torch.nn.Linear(2, 2))
