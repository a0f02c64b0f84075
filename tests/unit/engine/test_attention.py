"""What the packed attention function refuses, and what it hands to the kernel for all runs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.attention import packed_attention, ways
from engine.kernels import additive, causal_mask, explicit_attention
from engine.slab import Slab, Slot
from engine.steps import PackedStep, Run, SlabCache
from engine.unsupported import Unsupported


def attend(**changes: Any) -> None:
    """Call the attention function on one token with the given arguments."""
    module = nn.Module()
    module.layer_idx = 0  # type: ignore[assignment] # as transformers' attention modules have it
    one = torch.ones(1, 1, 1, 4)
    step = PackedStep(Slab(), torch.zeros(1, dtype=torch.int64), [])
    packed_attention(module, one, one, one, **({"attention_mask": None, "packed": step} | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"packed": None}, "keyword arguments"),
        ({"attention_mask": torch.ones(1)}, "mask of its own"),
        ({"position_bias": torch.ones(1)}, "position_bias"),
        ({"is_causal": False}, "is_causal"),
    ],
)
def test_other_kinds_of_attention_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    """A model that wants more than causal attention is never served without it."""
    with pytest.raises(Unsupported, match=named):
        attend(**changes)


def test_arguments_without_a_meaning_here_are_ignored() -> None:
    """Arguments that are off, or about other parts of a model, refuse nothing."""
    attend(is_causal=True, softcap=None, output_router_logits=False, dropout=0.0)


def reference_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Tensor,
) -> Tensor:
    """Do what torch's documentation says of `varlen_attn`, row by row, where no CUDA is."""
    assert enable_gqa
    assert 0 == window_size[1]
    window = None if window_size[0] < 0 else window_size[0] + 1
    out = torch.empty_like(query)
    for index, length in enumerate(seqused_k.tolist()):
        tokens = slice(int(cu_seq_q[index]), int(cu_seq_q[index + 1]))
        start = int(cu_seq_k[index])
        keys, values = (each[start : start + length].transpose(0, 1) for each in (key, value))
        count = tokens.stop - tokens.start
        assert count <= max_q
        assert length <= max_k
        mask = additive(causal_mask(count, length - count, window, query.device), query.dtype)
        given = query[tokens].transpose(0, 1)[None], keys[None], values[None]
        out[tokens] = explicit_attention(*given, mask, scale, None, None)[0].transpose(0, 1)
    return out


@pytest.mark.parametrize("window", [None, 3])
def test_one_kernel_attends_all_runs(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts, new tokens and drafts of one pass, in any order, come out as run by run."""
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", reference_varlen)
    module = nn.Module()
    module.layer_idx = 0  # type: ignore[assignment] # as above
    results = {}
    slab, slots = Slab(), [Slot(9), Slot(7), Slot(7), Slot(20)]
    slab.admit(slots)
    held = torch.randn(2, 1, 2, 43, 4, generator=generator)
    slab.write(0, held[0], held[1], torch.arange(43))
    fresh = torch.randn(3, 1, 4, 9, 4, generator=generator)
    counts, lengths = (1, 1, 4, 3), (9, 5, 4, 15)
    for way in ("runs", "varlen"):
        runs, where, at = [], [], 0
        for slot, count, length in zip(slots, counts, lengths, strict=True):
            runs.append(Run(at, at + count, slot.base, length, slot.stride))
            where.append(torch.arange(length - count, length) + slot.base)
            at += count
        step = PackedStep(slab, torch.cat(where), runs, way=way)
        query, keys, values = fresh[0], fresh[1][:, :2], fresh[2][:, :2]
        SlabCache(step).update(keys, values, 0)
        results[way], _ = packed_attention(
            module, query, keys, values, None, sliding_window=window, packed=step
        )

    assert torch.allclose(results["runs"], results["varlen"], atol=1e-6)


def test_the_kernel_for_all_runs_is_cudas() -> None:
    """It exists for half precision on CUDA."""
    cuda, cpu = torch.device("cuda"), torch.device("cpu")

    assert "varlen" == ways(torch.bfloat16, cuda)[0]
    assert "varlen" not in ways(torch.float32, cuda) + ways(torch.bfloat16, cpu)
