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


def test_a_row_that_joins_takes_the_room_that_others_left() -> None:
    """Nothing is laid out anew for it: what runs stays where it is."""
    slab, slots = Slab(), [Slot(90, 90), Slot(50, 50), Slot(48, 48), Slot(10, 10)]
    slab.admit(slots)
    for slot in slots:
        fill(slab, slot, 1.0)
    before = {slot: slot.base for slot in slots}
    tensor = slab._keys[0]

    slab.drop(slots[0])
    slab.drop(slots[2])
    joining = [Slot(40), Slot(60), Slot(20)]
    slab.admit(joining)

    check_integrity(slab)
    assert tensor is slab._keys[0]
    assert [before[slots[1]], before[slots[3]]] == [slots[1].base, slots[3].base]
    # behind the row of its own size; the others in what the longest left
    assert slots[1].base + slots[1].stride == joining[0].base
    assert {0, 60} == {slot.base for slot in joining[1:]}


def test_what_a_row_takes_is_zero() -> None:
    """Nothing that was there before is left, in its own slots or up to its lane's capacity."""
    slab, leaver = Slab(), Slot(20, 20)
    slab.admit([leaver])
    fill(slab, leaver, float("nan"))
    slab.drop(leaver)

    joining = Slot(15)
    slab.admit([joining])

    keys, values = slab.read(0, joining.base, 1, joining.stride, joining.stride)
    assert not keys.any()
    assert not values.any()


def test_memory_is_kept_for_the_next_rows_until_it_is_cleared() -> None:
    """An empty slab serves the next rows; a cleared one holds no tensors."""
    slab, slot = Slab(), Slot(4, 4)
    slab.admit([slot])
    fill(slab, slot, 1.0)
    tensor = slab._keys[0]

    slab.drop(slot)
    slab.admit([Slot(3)])
    kept = slab._keys[0]
    slab.clear()

    assert tensor is kept
    assert not slab.lanes
    assert not slab._keys


def test_slots_can_be_wiped_and_copied() -> None:
    """In every layer, and nothing beside them."""
    slab, source, target = Slab(), Slot(4, 4), Slot(4, 4)
    slab.admit([source, target])
    fill(slab, source, 5.0)
    fill(slab, target, 0.0)

    for layer in range(2):
        slab.copy(layer, source.base, target.base, 3)
    slab.wipe(source.base + 1, source.base + 4)

    for layer, value in ((0, 5.0), (1, 6.0)):
        kept, copied = (
            slab.read(layer, slot.base, 1, 4, 4)[0][0, 0, :, 0] for slot in (source, target)
        )
        assert [value, 0.0, 0.0, 0.0] == kept.tolist()
        assert [value, value, value, float(layer)] == copied.tolist()
