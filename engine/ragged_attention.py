"""Attention of rows of unequal length that keep their own state, plugged into transformers.

Decides how keys and values are kept and attended: those near (all of them, or a sliding window, in
a ring per row) and those far (what a compressor made of the tokens before). What a model asks for
beyond that raises `Unsupported`. May import torch, transformers and the modules of this package
below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.ragged import Block, RaggedPass, Run
from engine.unsupported import pass_of

NAME = "docmill-ragged"


@dataclass(frozen=True, slots=True)
class Far:
    """Compressed entries, keys and values at once: [B, N, D]; `seen`: [B, T, N] per block."""

    entries: Tensor
    seen: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the keys of queries, [B, K, S, D]; `mask`: [B, T, S], what they see, None: all."""

    keys: Tensor
    values: Tensor
    mask: Tensor | None


def ragged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    ragged: RaggedPass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend each row to itself, and keep its new keys and values.

    Shapes:
        query: [1, H, T, D].   key, value: [1, K, T, D].   s_aux: [H].   returns: [1, T, H, D].

    Raises:
        Unsupported: The model wants a kind of attention that is not built here.
    """
    ragged = pass_of(ragged, attention_mask, kwargs)
    layer = module.layer_idx
    assert isinstance(layer, int)
    ragged.windows_asked[layer] = sliding_window
    fresh = [key[0].transpose(0, 1)]  # [1, K, T, D] -> [T, K, D]
    if value is not key:  # a model that shares one tensor needs it stored once
        fresh.append(value[0].transpose(0, 1))
    states = [_state(ragged, (layer, name), sliding_window, x) for name, x in enumerate(fresh)]
    far = ragged.far.pop(layer, None)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if ragged.decoding:
        _keep(ragged, states, fresh)
    seen: dict[Run, list[Tensor]] = {}
    out = query.new_empty(query.shape[2], query.shape[1], value.shape[3])
    for index, block in enumerate(ragged.blocks):
        parts = [_near(ragged, block, states, fresh, sliding_window, seen)]
        if far is not None and far.seen[index].shape[-1]:
            parts.append(_far(block, far, far.seen[index]))
        folded = block.fold(query.transpose(1, 2)).transpose(1, 2)  # [B, H, T, D]
        attended = attend(folded, parts, scale, s_aux)
        out[block.start : block.end] = attended.transpose(1, 2).flatten(0, 1)
    if not ragged.decoding:  # only now: a ring loses what the first of the new tokens still see
        _keep(ragged, states, fresh)
    return out[None], None


def attend(
    query: Tensor, parts: Sequence[Part], scale: float, sinks: Tensor | None = None
) -> Tensor:
    """Attend queries to several runs of keys under one softmax, computed in fp32.

    A sink is a score of each head that takes its share of the attention and gives nothing.

    Shapes:
        query: [B, H, T, D].   sinks: [H].   returns: [B, H, T, D].
    """
    num_rows, num_heads, num_queries, _ = query.shape
    num_kept = parts[0].keys.shape[1]
    shape = (num_rows, num_kept, num_heads // num_kept, num_queries)
    grouped = query.reshape(num_rows, num_kept, -1, query.shape[-1])  # heads of a group as queries
    scores = []
    for part in parts:
        each = (grouped @ part.keys.transpose(-1, -2)).float().mul_(scale).view(*shape, -1)
        if part.mask is not None:
            each.masked_fill_(~part.mask[:, None, None], float("-inf"))
        scores.append(each)
    if sinks is not None:
        scores.append(sinks.float().view(1, num_kept, -1, 1, 1).expand(*shape, 1))
    weights = torch.cat(scores, -1).softmax(-1).to(query.dtype)
    ends = list(accumulate(part.keys.shape[2] for part in parts))
    out: Any = 0
    for part, end in zip(parts, ends, strict=True):
        share = weights[..., end - part.keys.shape[2] : end]
        out = out + share.flatten(2, 3) @ part.values
    attended: Tensor = out.view(num_rows, num_heads, num_queries, -1)
    return attended


def _state(ragged: RaggedPass, key: object, window: int | None, fresh: Tensor) -> Tensor:
    """Return the ring of a layer's keys or values: a window's size, or room for the whole row."""
    if window is None:
        return ragged.store.growing(key, 1, fresh.shape[1:], fresh)
    return ragged.store.fixed(key, (window, *fresh.shape[1:]), fresh)


def _keep(ragged: RaggedPass, states: Sequence[Tensor], fresh: Sequence[Tensor]) -> None:
    for state, tokens in zip(states, fresh, strict=True):
        ragged.keep(state, tokens)


def _near(
    ragged: RaggedPass,
    block: Block,
    states: Sequence[Tensor],
    fresh: Sequence[Tensor],
    window: int | None,
    seen: dict[Run, list[Tensor]],
) -> Part:
    """Return what a block sees of its rows' own keys; `seen` holds what runs have made so far."""
    if block.run is None:
        num_slots = min(states[0].shape[1], block.length)
        held = [block.of(state)[:, :num_slots].transpose(1, 2) for state in states]
        return Part(held[0], held[-1], ragged.filled(num_slots))
    run = block.run
    reach = None if window is None else window - 1
    if run not in seen:
        seen[run] = [
            torch.cat([ragged.before(state, run, reach), tokens[run.start : run.end]])
            if run.past
            else tokens[run.start : run.end]
            for state, tokens in zip(states, fresh, strict=True)
        ]
    begin = run.length - len(seen[run][0])  # the position of the first key
    first = begin
    if window is not None:
        first = max(begin, run.past + block.start - run.start - window + 1)
    held = [
        tokens[first - begin : block.length - begin].transpose(0, 1)[None] for tokens in seen[run]
    ]
    return Part(held[0], held[-1], ragged.near(block, window, first))


def _far(block: Block, far: Far, seen: Tensor) -> Part:
    entries = block.of(far.entries)[:, None, : seen.shape[-1]]
    return Part(entries, entries, seen)


AttentionInterface.register(NAME, ragged_attention)
