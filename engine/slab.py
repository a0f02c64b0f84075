"""Keys and values of the rows that are running: one slab per layer, sized exactly.

Decides where each row's tokens lie. A slab is a run of token slots per layer, `[N, K, D]`; rows of
like capacity lie side by side in *lanes*, so that one attention call can serve a lane while rows
of other lengths cost nothing. Rows that leave are closed up by moving the lane's last row. Fresh
slots hold zeros and a row's slots are never read for another, so no value of one row, not even
NaN, can reach its neighbours. May import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: Rows share a lane while the longest has at most this many times the capacity of the shortest:
#: bounds what decoding computes beyond a row's own end, at about 15 lanes for 50 to 3,000 tokens.
_LANE_SPREAD = 1.3


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


def plan_lanes(slots: Sequence[Slot]) -> tuple[list[Lane], int]:
    """Lay rows out, the longest first; return the lanes and the number of token slots they need."""
    lanes: list[Lane] = []
    total = 0
    for slot in sorted(slots, key=lambda slot: -slot.capacity):
        if not lanes or slot.capacity * _LANE_SPREAD < lanes[-1].capacity:
            lanes.append(Lane(total, slot.capacity))
        lanes[-1].slots.append(slot)
        total += lanes[-1].capacity
    return lanes, total


class Slab:
    """The memory of one running batch. Layers are allocated when they are first written."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self._total = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    @torch.inference_mode()
    def admit(self, slots: Sequence[Slot]) -> None:
        """Make room for more rows: lay everything out anew and copy what is held.

        Cost: one copy of the held tokens, layer by layer; small beside the new rows' prefill.
        """
        held = [slot for lane in self.lanes for slot in lane.slots]
        old_bases = [slot.base for slot in held]
        self.lanes, self._total = plan_lanes([*held, *slots])
        for lane in self.lanes:
            for index, slot in enumerate(lane.slots):
                slot.base, slot.stride = lane.base + index * lane.capacity, lane.capacity
        for store in (self._keys, self._values):
            for layer, old in store.items():
                store[layer] = new = old.new_zeros(self._total, *old.shape[1:])
                for slot, base in zip(held, old_bases, strict=True):
                    new[slot.base : slot.base + slot.length] = old[base : base + slot.length]

    @torch.inference_mode()
    def drop(self, slot: Slot) -> None:
        """Let a row leave; the last row of its lane moves into the gap."""
        lane = next(lane for lane in self.lanes if slot in lane.slots)
        last = lane.slots.pop()
        if last is not slot:
            lane.slots[lane.slots.index(slot)] = last
            for store in (self._keys, self._values):
                for tokens in store.values():
                    # the whole capacity: its unused part is zeros, unlike the leaver's
                    tokens[slot.base : slot.base + lane.capacity] = tokens[
                        last.base : last.base + lane.capacity
                    ]
            last.base = slot.base
        if not lane.slots:
            self.lanes.remove(lane)
        if not self.lanes:
            self.clear()

    def clear(self) -> None:
        """Free everything."""
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
    def copy(self, layer: int, source: int, target: int, num_tokens: int) -> None:
        """Give one row the keys and values that another has, `num_tokens` from each one's slot."""
        for store in (self._keys[layer], self._values[layer]):
            store[target : target + num_tokens] = store[source : source + num_tokens]

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
