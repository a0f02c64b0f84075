"""Where rows' keys and values lie, and that they stay their own."""

import random

import torch

from engine.slab import Slab, Slot, plan_lanes


def fill(slab: Slab, slot: Slot, value: float) -> None:
    """Write a row's every token as `value`, in two layers of one head of size 2."""
    where = torch.arange(slot.base, slot.base + slot.length)
    for layer in range(2):
        tokens = torch.full((1, 1, slot.length, 2), float(value + layer))
        slab.write(layer, tokens, -tokens, where)


def content(slab: Slab, slot: Slot, layer: int) -> tuple[set[float], set[float]]:
    """Return the distinct key and value numbers that a row holds."""
    keys, values = slab.read(layer, slot.base, 1, slot.length, slot.length)
    return set(keys.flatten().tolist()), set(values.flatten().tolist())


def check_integrity(slab: Slab) -> None:
    """Slots never overlap, and each lies at its place in its lane."""
    taken: set[int] = set()
    for lane in slab.lanes:
        for index, slot in enumerate(lane.slots):
            assert lane.base + index * lane.capacity == slot.base
            assert slot.length <= slot.capacity <= lane.capacity
            run = set(range(slot.base, slot.base + lane.capacity))
            assert not taken & run
            taken |= run


def test_rows_of_like_capacity_share_a_lane() -> None:
    """A lane holds rows up to 1.3 times apart, so little is computed beyond a row's end."""
    lanes, total = plan_lanes([Slot(capacity) for capacity in (10, 100, 95, 12, 50)])

    shape = [[slot.capacity for slot in lane.slots] for lane in lanes]
    assert [[100, 95], [50], [12, 10]] == shape
    assert 2 * 100 + 50 + 2 * 12 == total


def test_rows_keep_their_content_while_others_come_and_go() -> None:
    """Random joining and leaving moves rows about, but never changes what they hold."""
    choose = random.Random(1)
    slab, live, number = Slab(), dict[Slot, float](), 0
    for _ in range(60):
        if choose.random() < 0.5:
            joining = [Slot(choose.randint(1, 30)) for _ in range(choose.randint(1, 4))]
            slab.admit(joining)
            for slot in joining:
                slot.length = choose.randint(1, slot.capacity)
                number += 10
                live[slot] = number
                fill(slab, slot, number)
        elif live:
            leaving = choose.choice(list(live))
            del live[leaving]
            slab.drop(leaving)
        check_integrity(slab)
        for slot, value in live.items():
            for layer in range(2):
                assert ({value + layer}, {-value - layer}) == content(slab, slot, layer)


def test_a_row_that_left_leaves_nothing_to_its_lane() -> None:
    """What NaN a row held is out of reach of the rows that stay, whole capacity included."""
    slab, slots = Slab(), [Slot(8, 8), Slot(8, 2), Slot(8, 3)]
    slab.admit(slots)
    for slot, value in zip(slots, (float("nan"), 1.0, 2.0), strict=True):
        fill(slab, slot, value)

    slab.drop(slots[0])

    [lane] = slab.lanes
    keys, values = slab.read(0, lane.base, len(lane.slots), lane.capacity, lane.capacity)
    assert 2 == len(lane.slots)
    assert bool(keys.isfinite().all() and values.isfinite().all())


def test_memory_is_freed_with_the_last_row() -> None:
    """An empty slab holds no tensors."""
    slab, slot = Slab(), Slot(4, 4)
    slab.admit([slot])
    fill(slab, slot, 1.0)

    slab.drop(slot)

    assert not slab.lanes
    assert not slab._keys
