"""Compressed attention (DeepSeek-V4's two kinds) for rows of unequal length.

Decides which windows of which rows become entries in a pass, and which entries each token may see.
The module stands in the place of transformers' compressor, whose weights, norm, rotary embedding
and scorer it goes on using. A compressor makes one entry of every `rate` tokens; where its weights
are twice as wide (*overlap*), an entry also takes from the window before. An *indexer*, itself a
small compressor, scores entries, and each token sees the best ones. May import torch and the
modules of this package below it.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engine.ragged import RaggedPass, Windows
from engine.ragged_attention import Far
from engine.ragged_forward import RaggedCache

#: What transformers' compressors and indexers have and this module uses.
_PARTS = ("kv_proj", "gate_proj", "position_bias", "kv_norm", "rotary_emb", "rope_layer_type")
_COMPRESSOR = (*_PARTS, "compress_rate", "head_dim")
_INDEXER = (*_COMPRESSOR, "q_b_proj", "scorer", "index_topk")


class RaggedCompressor(nn.Module):
    """Compresses each row by itself; with another cache than ours it is what it replaces."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self._rotate = _rotation(inner)

    def forward(
        self,
        hidden_states: Tensor,
        q_residual: Tensor,
        position_ids: Tensor,
        cache: Any,
        layer_idx: int,
    ) -> tuple[Tensor, Tensor | None]:
        """Leave what the layer's attention may see in the pass; add no keys to its own.

        Shapes:
            hidden_states: [1, T, E].   q_residual: [1, T, *].   returns: [1, 1, 0, D], None.
        """
        if not isinstance(cache, RaggedCache):
            made: tuple[Tensor, Tensor | None] = self.inner(
                hidden_states, q_residual, position_ids, cache, layer_idx
            )
            return made
        ragged, rate = cache.ragged, self.inner.compress_rate
        entries = self._compress(self.inner, ragged, (layer_idx, "entries"), hidden_states)
        seen = [ragged.closed(block, rate) for block in ragged.blocks]
        if hasattr(self.inner, "indexer"):
            indexer = self.inner.indexer
            index = self._compress(indexer, ragged, (layer_idx, "index"), hidden_states)
            query = self._query(indexer, q_residual, position_ids)
            seen = self._choose(indexer, ragged, index, query, hidden_states, seen)
        ragged.far[layer_idx] = Far(entries, seen)
        return hidden_states.new_zeros(1, 1, 0, self.inner.head_dim), None

    def _compress(self, part: Any, ragged: RaggedPass, key: object, hidden: Tensor) -> Tensor:
        """Take new tokens in; return all entries of all rows, [B, N, D]."""
        kv, gate = part.kv_proj(hidden)[0], part.gate_proj(hidden)[0]
        width, store = kv.shape[-1], ragged.store
        size = part.compress_rate * (width // part.head_dim)  # with overlap, two windows
        held_kv = store.fixed((key, "kv"), (size, width), kv)
        held_gate = store.fixed((key, "gate"), (size, width), gate)
        entries = store.growing(key, part.compress_rate, (part.head_dim,), kv)
        windows = ragged.windows(part.compress_rate, size)
        if windows is not None:
            made = self._pool(
                part, windows, windows.collect(held_kv, kv), windows.collect(held_gate, gate)
            )
            entries[windows.rows, windows.numbers] = made.to(entries.dtype)
        ragged.keep(held_kv, kv)
        ragged.keep(held_gate, gate)
        return entries

    def _pool(self, part: Any, windows: Windows, kv: Tensor, gate: Tensor) -> Tensor:
        """Make the entries of windows that have filled up; [N, D]."""
        now_kv, now_gate = kv[windows.current], gate[windows.current] + part.position_bias
        dim = part.head_dim
        if now_kv.shape[-1] > dim:
            old_gate = (gate[windows.previous] + part.position_bias)[..., :dim]
            old_gate = old_gate.masked_fill(windows.is_first[:, None, None], float("-inf"))
            now_kv = torch.cat([kv[windows.previous][..., :dim], now_kv[..., dim:]], 1)
            now_gate = torch.cat([old_gate, now_gate[..., dim:]], 1)
        weights = now_gate.softmax(1, dtype=torch.float32).to(now_kv.dtype)
        pooled = part.kv_norm((now_kv * weights).sum(1))
        return self._turn(part, pooled[None, None], windows.starts[None])[0, 0]

    def _query(self, indexer: Any, q_residual: Tensor, positions: Tensor) -> Tensor:
        query = indexer.q_b_proj(q_residual).unflatten(-1, (-1, indexer.head_dim))
        return self._turn(indexer, query.transpose(1, 2), positions).transpose(1, 2)

    def _turn(self, part: Any, heads: Tensor, positions: Tensor) -> Tensor:
        """Apply the part's rotary embedding to [1, H, T, D]."""
        cos, sin = part.rotary_emb(heads, position_ids=positions, layer_type=part.rope_layer_type)
        return self._rotate(heads, cos, sin)

    def _choose(
        self,
        indexer: Any,
        ragged: RaggedPass,
        index: Tensor,
        query: Tensor,
        hidden: Tensor,
        closed: list[Tensor],
    ) -> list[Tensor]:
        """Return which of the entries that have closed each token sees, for each block."""
        chosen = []
        for block, seen in zip(ragged.blocks, closed, strict=True):
            num_entries = seen.shape[-1]
            if num_entries <= indexer.index_topk:
                chosen.append(seen)
                continue
            entries = block.of(index)[:, :num_entries]
            scores = indexer.scorer(block.fold(query), entries, block.fold(hidden))
            scores = scores.masked_fill(~seen, float("-inf"))
            chosen.append(seen & best(scores, indexer.index_topk))
        return chosen


def best(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` highest scores along the last dimension, the first of equal ones.

    Which of equal scores `topk` returns depends on the shape, so on a row's neighbours.
    """
    lowest = scores.topk(count, dim=-1).values[..., -1:]
    above, ties = scores > lowest, scores == lowest
    room = count - above.sum(-1, keepdim=True)
    return above | (ties & (ties.cumsum(-1) <= room))


def can_replace(module: Any) -> bool:
    """Say whether a module has the parts of a compressor that this one can stand for."""
    if not all(hasattr(module, name) for name in _COMPRESSOR) or _rotation(module) is None:
        return False
    return all(hasattr(getattr(module, "indexer", module), name) for name in _wanted(module))


def _wanted(module: Any) -> tuple[str, ...]:
    return _INDEXER if hasattr(module, "indexer") else _COMPRESSOR


def _rotation(module: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor] | Any:
    """Return the function with which a compressor's own source applies rotary embeddings."""
    return getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
