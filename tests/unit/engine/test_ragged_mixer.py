"""A recurrent layer on rows of unequal length, against the layer on each row by itself."""

from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from engine.ragged import RaggedPass, Run
from engine.ragged_forward import RaggedCache
from engine.ragged_mixer import RaggedMixer
from engine.ragged_store import RowStore
from tests.support.tiny_models.stateful import qwen3_next


@cache
def model() -> Any:
    """The tiny Qwen3-Next, as transformers loads it; its first layer is recurrent."""
    return AutoModelForCausalLM.from_pretrained(qwen3_next(), dtype=torch.float32).eval()


def hidden(length: int, seed: int) -> torch.Tensor:
    """Return hidden states of one row."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((1, length, model().config.hidden_size), generator=generator)


@pytest.mark.parametrize("cuts", [(9, 4, 1, 1), (1, 1, 1), (2, 70, 1, 3)], ids=str)
@torch.inference_mode()
def test_rows_in_parts_are_mixed_like_each_row_alone(cuts: tuple[int, ...]) -> None:
    """Out of step by five tokens, in chunks and token by token."""
    inner = model().model.layers[0].linear_attn
    mixer, store = RaggedMixer(inner, 1), RowStore()
    lengths = (sum(cuts), 5 + sum(cuts))
    store.admit(2, max(lengths))
    rows = [hidden(length, seed) for seed, length in enumerate(lengths)]
    outs: list[list[torch.Tensor]] = [[], []]
    pasts = [0, 0]
    for counts in [(0, 5), *((cut, cut) for cut in cuts)]:
        runs, start = [], 0
        for row, count in enumerate(counts):
            if count:
                runs.append(Run(row, start, start + count, pasts[row]))
                start += count
        decoding = counts == (1, 1) and pasts[0] > 0
        ragged = RaggedPass(store, runs, decoding, torch.device("cpu"))
        packed = torch.cat([rows[run.row][:, run.past : run.length] for run in runs], 1)
        mixed = mixer(packed, cache=RaggedCache(ragged))
        for run in runs:
            outs[run.row].append(mixed[0, run.start : run.end])
            pasts[run.row] = run.length

    for row, whole in enumerate(rows):
        expected = inner(hidden_states=whole, cache=DynamicCache(config=model().config))[0]
        # fp32 sums over chunks of 64 tokens in another order
        torch.testing.assert_close(torch.cat(outs[row]), expected, rtol=1e-3, atol=1e-4)


@torch.inference_mode()
def test_with_another_cache_it_is_what_it_replaces() -> None:
    """Transformers' own cache works as before."""
    inner, states = model().model.layers[0].linear_attn, hidden(7, 0)
    caches = [DynamicCache(config=model().config) for _ in range(2)]

    got = RaggedMixer(inner, 1)(states, cache=caches[0])

    assert torch.equal(inner(hidden_states=states, cache=caches[1]), got)
