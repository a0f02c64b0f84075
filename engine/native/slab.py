"""The slab in the order in which the kernels read it.

Decides how keys and values lie inside a block of 32 tokens: keys of a head as [D / 2, 32, 2],
values as [D / 32, 16, 32, 2] (`src/attention.h`). Rows begin at blocks, so a block moves as a whole
and the bookkeeping is `engine.slab`'s. The kernels read no slot behind a row's newest token, so
that what an earlier row has left there is harmless. May import torch, engine.slab and
engine.unsupported.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.slab import Slab, Slot
from engine.unsupported import Unsupported

BLOCK_TOKENS = 32


class BlockSlab(Slab):
    """Keys and values in blocks; a slot's own values lie scattered over its block."""

    def admit(self, slots: Sequence[Slot]) -> None:
        """Make room for more rows, in whole blocks."""
        for slot in slots:
            slot.capacity = whole_blocks(slot.capacity)
        super().admit(slots)

    def layer(self, layer: int, num_kv_heads: int, head_dim: int, like: Tensor) -> list[Tensor]:
        """Return keys and values of a layer, allocated when first asked for.

        Shapes:
            returns: two of [token slots, K, D], in no order that torch knows.
        """
        stores = self._keys, self._values
        for store in stores:
            if layer not in store:
                store[layer] = like.new_empty(self._total, num_kv_heads, head_dim)
        return [store[layer] for store in stores]

    def wipe(self, start: int, end: int) -> None:
        """Do nothing: what the kernels do not read need not be wiped."""

    @torch.inference_mode()
    def write(self, layer: int, keys: Tensor, values: Tensor, where: Tensor) -> None:
        """Store the keys and values of packed tokens; see `Slab.write`."""
        _, K, T, D = keys.shape
        if D % 32 or values.shape[3] != D:
            raise Unsupported(f"heads of {D} and {values.shape[3]} values: they take 32, 64, 96 …")
        fresh = torch.cat((keys, values), 1)[0].transpose(0, 1).reshape(T, 2 * K * D)
        stores = self.layer(layer, K, D, fresh)
        torch.ops.docmill.store(fresh, where, *stores, 0, K, *[None] * 4, 0.0)

    @torch.inference_mode()
    def copy(self, layer: int, source: int, target: int, num_tokens: int) -> None:
        """Give one row the keys and values that another has, from the beginning of each."""
        rest = num_tokens % BLOCK_TOKENS
        whole = num_tokens - rest
        super().copy(layer, source, target, whole)
        if not rest:
            return
        # slot by slot: the target's own tokens may be behind the rest already
        of, to = ((base + whole) // BLOCK_TOKENS for base in (source, target))
        keys, values = self._keys[layer], self._values[layer]
        _, K, D = keys.shape
        keys = keys.view(-1, K * D // 2, BLOCK_TOKENS, 2)
        keys[to, :, :rest] = keys[of, :, :rest]
        values = values.view(-1, K * D // 32, BLOCK_TOKENS // 2, 32, 2)
        values[to, :, : rest // 2] = values[of, :, : rest // 2]
        if rest % 2:
            values[to, :, rest // 2, :, 0] = values[of, :, rest // 2, :, 0]

    def attend(
        self,
        layer: int,
        query: Tensor,
        runs: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """Attend runs of packed tokens.

        Shapes:
            query: [1, H, T, D].   runs: [R, 4], int32, `PackedStep.run_table`.   sinks: [H], fp32.
            returns: [1, T, H, D].
        """
        _, H, T, D = query.shape
        rows = query[0].transpose(0, 1).reshape(T, H * D)
        keys, values = self._keys[layer], self._values[layer]
        K = keys.shape[1]
        limits = window or 0, softcap or 0.0
        out: Tensor = torch.ops.docmill.attend(
            rows, keys, values, runs, H, K, D, scale, *limits, sinks
        )
        return out.view(1, T, H, D)


def whole_blocks(num_tokens: int) -> int:
    """Round up to whole blocks."""
    return -(-num_tokens // BLOCK_TOKENS) * BLOCK_TOKENS
