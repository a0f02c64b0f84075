"""Attention over blocks against attention score by score, and against itself cut otherwise."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from engine.kernels import additive, causal_mask, explicit_attention
from engine.native.slab import BlockSlab
from engine.slab import Slot
from engine.steps import PackedStep, Run

HEADS, KV_HEADS, DIM = 6, 2, 32
#: Weights are rounded to bf16 before they meet the values, and so is the result.
TOLERANCE = 1e-2


def row(
    length: int, seed: int = 0, kv_heads: int = KV_HEADS, dim: int = DIM
) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries, keys and values of one row; [1, H, T, D] and [1, K, T, D]."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    shapes = ((HEADS, length), (kv_heads, length), (kv_heads, length))
    query, keys, values = (
        torch.randn(1, *shape, dim, generator=generator).bfloat16() for shape in shapes
    )
    return query, keys, values


def attend(
    slab: BlockSlab,
    parts: list[tuple[Slot, tuple[Tensor, Tensor, Tensor], int, int]],
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Store and attend tokens from `start` to `end` of rows in one pass; [T, H, D]."""
    where = torch.cat([torch.arange(a, b) + slot.base for slot, _, a, b in parts])
    runs, at = [], 0
    for slot, _, start, end in parts:
        runs.append(Run(at, at + end - start, slot.base, end, slot.stride))
        at += end - start
    step = PackedStep(slab, where, runs)
    query, keys, values = (
        torch.cat([tensors[index][:, :, a:b] for _, tensors, a, b in parts], 2)
        for index in range(3)
    )
    slab.write(0, keys, values, where)
    scale = query.shape[3] ** -0.5
    return slab.attend(0, query, step.run_table, scale, window, softcap, sinks)[0]


def places(*lengths: int, kv_heads: int = KV_HEADS, dim: int = DIM) -> tuple[BlockSlab, list[Slot]]:
    """Make room for rows, in memory full of NaN as an earlier batch may leave it."""
    slab, slots = BlockSlab(), [Slot(length) for length in lengths]
    slab.admit(slots)
    for store in slab.layer(0, kv_heads, dim, torch.zeros(1).bfloat16()):
        store.fill_(float("nan"))
    return slab, slots


def expected(
    tensors: tuple[Tensor, Tensor, Tensor],
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend a whole row score by score, in fp32; [T, H, D]."""
    query, keys, values = (each.float() for each in tensors)
    mask = additive(causal_mask(query.shape[2], 0, window, query.device), torch.float32)
    attended = explicit_attention(query, keys, values, mask, query.shape[3] ** -0.5, softcap, sinks)
    return attended[0].transpose(0, 1)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 127, 128, 129, 300])
@pytest.mark.parametrize("window", [None, 1, 5, 130])
def test_a_row_sees_itself_and_what_came_before(length: int, window: int | None) -> None:
    """Lengths around blocks and groups of blocks, with windows of all kinds."""
    tensors = row(length)
    slab, [slot] = places(length)

    got = attend(slab, [(slot, tensors, 0, length)], window)

    assert torch.allclose(expected(tensors, window), got.float(), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("heads", [48, 71])
def test_many_heads_may_share_their_keys(heads: int) -> None:
    """More than a tile has rows, too, as in Falcon."""
    query, keys, values = row(40, kv_heads=1)
    tensors = query.repeat(1, -(-heads // HEADS), 1, 1)[:, :heads], keys, values
    slab, slot = BlockSlab(), Slot(40)
    slab.admit([slot])

    got = attend(slab, [(slot, tensors, 0, 40)])

    assert torch.allclose(expected(tensors), got.float(), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("dim", [64, 96, 256])
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
@pytest.mark.parametrize("shared", [33, 160])
def test_heads_may_be_wide_and_many(dim: int, kv_heads: int, shared: int) -> None:
    """Whole, one new token at a time, and begun by a copy: the same to the last bit, and right."""
    tensors = row(165, kv_heads=kv_heads, dim=dim)
    slab, slots = places(165, 165, 165, kv_heads=kv_heads, dim=dim)

    whole = attend(slab, [(slots[0], tensors, 0, 165)])
    cuts = [0, 129, *range(150, 166)]
    parts = [attend(slab, [(slots[1], tensors, a, b)]) for a, b in pairwise(cuts)]
    slab.copy(0, slots[0].base, slots[2].base, shared)
    copied = attend(slab, [(slots[2], tensors, shared, 165)])

    assert torch.allclose(expected(tensors), whole.float(), atol=TOLERANCE, rtol=TOLERANCE)
    assert torch.equal(whole, torch.cat(parts))
    assert torch.equal(whole[shared:], copied)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_capped_scores_and_sinks(softcap: float | None, has_sinks: bool) -> None:
    """What Gemma 2 and gpt-oss ask for."""
    tensors = row(200)
    sinks = torch.linspace(-2, 6, HEADS) if has_sinks else None
    slab, [slot] = places(200)

    got = attend(slab, [(slot, tensors, 0, 200)], None, softcap, sinks)

    exact = expected(tensors, None, softcap, sinks)
    assert torch.allclose(exact, got.float(), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("cuts", [[299], [1, 2, 3], [128, 129, 255], list(range(10, 300, 10))])
def test_however_a_row_is_cut_nothing_changes(cuts: list[int], window: int | None) -> None:
    """To the last bit: whole, in parts, among other rows, one new token at a time."""
    tensors, other = row(300), row(77, seed=1)
    slab, [slot] = places(300)
    whole = attend(slab, [(slot, tensors, 0, 300)], window)
    slab, [slot, beside] = places(300, 77)
    borders = [0, *cuts, 300]

    parts = [
        attend(slab, [(beside, other, 0, 77), (slot, tensors, start, end)], window)[77:]
        for start, end in pairwise(borders)
    ]

    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("shared", [1, 31, 32, 33, 64, 70])
def test_a_copied_beginning_is_the_same_beginning(shared: int) -> None:
    """What a row stores itself, before the copy is made, survives it."""
    tensors = row(90)
    slab, [source, target] = places(90, 90)
    whole = attend(slab, [(source, tensors, 0, 90)])
    rest = tuple(each[:, :, shared:] for each in tensors)

    where = torch.arange(shared, 90) + target.base
    slab.write(0, rest[1], rest[2], where)
    slab.copy(0, source.base, target.base, shared)
    table = PackedStep(slab, where, [Run(0, 90 - shared, target.base, 90, 0)]).run_table
    got = slab.attend(0, rest[0], table, DIM**-0.5, None, None, None)[0]

    assert torch.equal(whole[shared:], got)


def test_a_row_that_is_not_finite_is_alone() -> None:
    """NaN in one row's keys and values reaches no other, in its pass or in its place later."""
    sick, well = row(50), row(50, seed=1)
    for each in sick:
        each[:, :, 7] = float("nan")
    slab, [first, second] = places(50, 50)

    got = attend(slab, [(first, sick, 0, 50), (second, well, 0, 50)])

    assert got[7:50].isnan().all()
    exact = expected(well)
    assert torch.allclose(exact, got[50:].float(), atol=TOLERANCE, rtol=TOLERANCE)

    again = attend(slab, [(first, well, 0, 33)])

    assert torch.allclose(exact[:33], again.float(), atol=TOLERANCE, rtol=TOLERANCE)


def test_some_tokens_alone_attend_as_among_all() -> None:
    """The newest tokens of some runs, none of others, as the last layer computes them."""
    rows = [row(length, seed) for seed, length in enumerate((50, 7, 130, 1))]
    slab, slots = places(50, 7, 130, 1)
    parts = [(slot, each, 0, each[0].shape[2]) for slot, each in zip(slots, rows, strict=True)]
    attended = attend(slab, parts)

    ends = [50, 57, 187, 188]
    runs = [
        Run(end - length, end, slot.base, length, slot.stride)
        for end, slot, length in zip(ends, slots, (50, 7, 130, 1), strict=True)
    ]
    keep = torch.tensor([49, 184, 185, 186, 187])
    step = PackedStep(slab, torch.zeros(0), runs, keep=keep)
    query = torch.cat([each[0] for each in rows], 2)[:, :, keep]
    got = slab.attend(0, query, step.kept_table, DIM**-0.5, None, None, None)[0]

    assert torch.equal(attended[keep], got)
