"""What the rows of a stateful model keep between two passes: one tensor per kind of state.

Decides where a row's state lies. The first dimension of every tensor is the row, and live rows are
always the first ones: a row that leaves is overwritten by the last. Knows nothing of what the
states mean. Fresh rows hold zeros and no row reads another's, so no value of one row, not even
NaN, can reach its neighbours. May import torch.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False, slots=True)
class _Held:
    """`tensor`: [B, ...]. `tokens_each`: a slot for so many tokens of the row; 0: size is fixed."""

    tensor: Tensor
    tokens_each: int


class RowStore:
    """The state of one running batch. Tensors are allocated when they are first asked for."""

    def __init__(self) -> None:
        self.num_rows = 0
        #: Tokens of the longest row, its answer included; what grows is as long as that needs.
        self.capacity = 0
        self._held: dict[Hashable, _Held] = {}

    @torch.inference_mode()
    def admit(self, num_rows: int, capacity: int) -> None:
        """Make room for more rows; `capacity` must suffice for all, old and new.

        Cost: one copy of what is held; small beside the new rows' prefill.
        """
        old_rows, self.num_rows, self.capacity = self.num_rows, self.num_rows + num_rows, capacity
        for held in self._held.values():
            old = held.tensor[:old_rows]
            held.tensor = self._zeros(held.tokens_each, old.shape[1:], old)
            if held.tokens_each:
                used = min(old.shape[1], held.tensor.shape[1])
                held.tensor[:old_rows, :used] = old[:, :used]
            else:
                held.tensor[:old_rows] = old

    @torch.inference_mode()
    def drop(self, row: int) -> int:
        """Let a row leave; return the row whose state moved into its place, which may be itself."""
        self.num_rows -= 1
        last = self.num_rows
        if row != last:
            for held in self._held.values():
                held.tensor[row] = held.tensor[last]
        if not self.num_rows:
            self.clear()
        return last

    @torch.inference_mode()
    def copy(self, source: int, row: int) -> None:
        """Let a row go on from where another is now."""
        for held in self._held.values():
            held.tensor[row] = held.tensor[source]

    def clear(self) -> None:
        """Free everything."""
        self.num_rows = self.capacity = 0
        self._held.clear()

    def fixed(self, key: Hashable, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return a state of one size for every row; [B, *shape], or more rows."""
        if key not in self._held:
            self._held[key] = _Held(like.new_zeros(self.num_rows, *shape), 0)
        return self._held[key].tensor

    def growing(
        self, key: Hashable, tokens_each: int, shape: Sequence[int], like: Tensor
    ) -> Tensor:
        """Return a state with one slot per `tokens_each` tokens; [B, slots, *shape]."""
        if key not in self._held:
            tensor = self._zeros(tokens_each, (0, *shape), like)
            self._held[key] = _Held(tensor, tokens_each)
        return self._held[key].tensor

    def find(self, key: Hashable) -> Tensor | None:
        """Return a state if there is one."""
        held = self._held.get(key)
        return None if held is None else held.tensor

    def _zeros(self, tokens_each: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return fresh rows; where slots grow, the first of `shape` is set anew."""
        if tokens_each:
            shape = (self.capacity // tokens_each, *shape[1:])
        return like.new_zeros(self.num_rows, *shape)
