"""Keys and values of the rows that are running: one slab per layer.

Decides where each row's tokens lie. A slab is a run of token slots per layer, `[N, K, D]`; rows of
like capacity lie side by side in *lanes*, so that one attention call can serve a lane while rows
of other lengths cost nothing. A row that leaves is closed up by moving its lane's last row, and a
row that joins takes the room that others have left; only where none is wide enough is everything
laid out anew. What a row takes is zeroed first and a row's slots are never read for another, so no
value of one row, not even NaN, can reach its neighbours or who comes after it. May import torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: Rows share a lane while the longest has at most this many times the capacity of the shortest:
#: bounds what decoding computes beyond a row's own end, at about 15 lanes for 50 to 3,000 tokens.
_LANE_SPREAD = 1.3

#: A row that joins may take a place of up to this many times its need: more rows find one.
_PLACE_SPREAD = 2.0

#: Room beyond the rows' own when a running slab is laid out anew: then one in 100 rows that join
#: causes it, against one in 25 without (simulated, lengths of 50 to 3,000 and of one bucket).
_SLACK = 0.125
_BLOCK = 64


@dataclass(eq=False, slots=True)
class Slot:
    """Where one row lives: `capacity` token slots from `base`, of which `length` are used.

    `stride`: token slots from this row's first to that of the next row in its lane.
    """

    capacity: int
    length: int = 0
    base: int = -1
    stride: int = 0


@dataclass(eq=False, slots=True)
class Lane:
    """Rows side by side, `capacity` token slots each, from slot `base`."""

    base: int
    capacity: int
    slots: list[Slot] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The first token slot behind the lane's rows."""
        return self.base + len(self.slots) * self.capacity

    def append(self, slot: Slot) -> None:
        """Put a row behind the lane's last one."""
        slot.base, slot.stride = self.end, self.capacity
        self.slots.append(slot)


def plan_lanes(slots: Sequence[Slot]) -> tuple[list[Lane], int]:
    """Lay rows out, the longest first; return the lanes and the number of token slots they need."""
    lanes: list[Lane] = []
    for slot in sorted(slots, key=lambda slot: -slot.capacity):
        if not lanes or slot.capacity * _LANE_SPREAD < lanes[-1].capacity:
            lanes.append(Lane(lanes[-1].end if lanes else 0, slot.capacity))
        lanes[-1].append(slot)
    return lanes, lanes[-1].end if lanes else 0


class Slab:
    """The memory of running rows. Layers are allocated when they are first written."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self._total = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    @torch.inference_mode()
    def admit(self, slots: Sequence[Slot]) -> None:
        """Make room for more rows.

        Cost: zeroing what they take. Where they do not fit, one copy of the held tokens besides.
        """
        if self.lanes:
            fitted = all(self._fit(slot) for slot in sorted(slots, key=lambda slot: -slot.capacity))
        else:
            self.lanes, total = plan_lanes(slots)
            fitted = total <= self._total
        if not fitted:
            self._lay_out(slots)
        for slot in slots:
            self.wipe(slot.base, slot.base + slot.stride)

    def _fit(self, slot: Slot) -> bool:
        """Put a row where others have left room: behind a lane, else in a lane of its own."""
        gaps = self._gaps()
        behind = [
            lane
            for lane, gap in gaps
            if lane and slot.capacity <= lane.capacity <= min(gap, _PLACE_SPREAD * slot.capacity)
        ]
        if behind:
            min(behind, key=lambda lane: lane.capacity).append(slot)
            return True
        wide = [(gap, lane.end if lane else 0) for lane, gap in gaps if gap >= slot.capacity]
        if not wide:
            return False
        own = Lane(min(wide)[1], slot.capacity)
        own.append(slot)
        self.lanes.append(own)
        return True

    def _gaps(self) -> list[tuple[Lane | None, int]]:
        """Return each lane, and None for the slab's beginning, with the token slots behind it."""
        lanes = sorted(self.lanes, key=lambda lane: lane.base)
        ends = [0, *(lane.end for lane in lanes)]
        starts = [*(lane.base for lane in lanes), self._total]
        gaps = [start - end for end, start in zip(ends, starts, strict=True)]
        return list(zip([None, *lanes], gaps, strict=True))

    def _lay_out(self, joining: Sequence[Slot]) -> None:
        """Lay everything out anew and copy what is held, layer by layer."""
        fresh = set(joining)
        held = [slot for lane in self.lanes for slot in lane.slots if slot not in fresh]
        old_bases = [slot.base for slot in held]
        self.lanes, needed = plan_lanes([*held, *joining])
        # whole blocks, where rows are laid out in blocks
        slack = int(needed * _SLACK) // _BLOCK * _BLOCK if held else 0
        self._total = max(self._total, needed + slack)
        for store in (self._keys, self._values):
            for layer, old in store.items():
                store[layer] = new = old.new_zeros(self._total, *old.shape[1:])
                for slot, base in zip(held, old_bases, strict=True):
                    new[slot.base : slot.base + slot.capacity] = old[base : base + slot.capacity]

    @torch.inference_mode()
    def drop(self, slot: Slot) -> None:
        """Let a row leave; the last row of its lane moves into the gap."""
        lane = next(lane for lane in self.lanes if slot in lane.slots)
        last = lane.slots.pop()
        if last is not slot:
            lane.slots[lane.slots.index(slot)] = last
            for tokens in self._tensors():
                # the whole capacity: its unused part is finite, unlike the leaver's perhaps
                tokens[slot.base : slot.base + lane.capacity] = tokens[
                    last.base : last.base + lane.capacity
                ]
            last.base = slot.base
        if not lane.slots:
            self.lanes.remove(lane)

    def clear(self) -> None:
        """Let every row go and free the memory."""
        self.lanes, self._total = [], 0
        self._keys.clear()
        self._values.clear()

    @torch.inference_mode()
    def write(self, layer: int, keys: Tensor, values: Tensor, where: Tensor) -> None:
        """Store the keys and values of packed tokens.

        Shapes:
            keys, values: [1, K, T, D].   where: [T], token slots, int64.
        """
        for store, fresh in ((self._keys, keys), (self._values, values)):
            if layer not in store:
                store[layer] = fresh.new_zeros(self._total, fresh.shape[1], fresh.shape[3])
            store[layer].index_copy_(0, where, fresh[0].transpose(0, 1))

    @torch.inference_mode()
    def wipe(self, start: int, end: int) -> None:
        """Zero token slots in every layer: what is not finite must not be read, even masked."""
        for tokens in self._tensors():
            tokens[start:end] = 0

    @torch.inference_mode()
    def copy(self, layer: int, source: int, target: int, num_tokens: int) -> None:
        """Give one row the keys and values that another has, `num_tokens` from each one's slot."""
        for store in (self._keys[layer], self._values[layer]):
            store[target : target + num_tokens] = store[source : source + num_tokens]

    def stores(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return all keys and values of a layer; two of [token slots, K, D]."""
        return self._keys[layer], self._values[layer]

    def read(self, layer: int, base: int, rows: int, capacity: int, length: int) -> list[Tensor]:
        """Return keys and values of rows that lie side by side, as views.

        Shapes:
            returns: two of [rows, K, length, D].
        """
        return [
            store[layer][base : base + rows * capacity]
            .view(rows, capacity, *store[layer].shape[1:])[:, :length]
            .transpose(1, 2)
            for store in (self._keys, self._values)
        ]

    def _tensors(self) -> Iterator[Tensor]:
        yield from self._keys.values()
        yield from self._values.values()
