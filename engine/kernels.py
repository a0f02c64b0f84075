"""Attention arithmetic for one run of one row, and for one token of each row of a lane.

Decides which kernel computes it. On CUDA, in fp32, and on CPUs that multiply bf16 tiles in
hardware torch's fused kernel is fastest; on other CPUs in bf16 plain matrix products over tiles of
queries are (2x for short rows, measured on AVX-512). May import torch and engine.device.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.device import has_matrix_tiles

#: Queries per tile: the best of 64, 128 and 256 between 256 and 2,048 tokens.
_TILE = 128


def prefers_tiles(query: Tensor) -> bool:
    """Say whether `tiled_causal` is faster than the fused kernel for queries like these."""
    return query.dtype is torch.bfloat16 and query.device.type == "cpu" and not has_matrix_tiles()


def additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Turn a mask into what is added to scores: kernels do so anyway, and would in every layer."""
    if mask is None:
        return None
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)


def causal_mask(num_queries: int, past: int, window: int | None, device: torch.device) -> Tensor:
    """Return what the last `num_queries` of `past + num_queries` tokens see, as bool [T, S]."""
    position = torch.arange(past, past + num_queries, device=device)[:, None]
    seen = torch.arange(past + num_queries, device=device)[None]
    mask = seen <= position
    return mask if window is None else mask & (seen > position - window)


def lane_mask(lengths: tuple[int, ...], window: int | None, device: torch.device) -> Tensor | None:
    """Return what the newest token of each row sees, as bool [B, 1, 1, S]; None if all of it."""
    longest = max(lengths)
    if min(lengths) == longest and (window is None or window >= longest):
        return None
    length = torch.tensor(lengths, device=device)[:, None, None, None]
    seen = torch.arange(longest, device=device)
    mask = seen < length
    return mask if window is None else mask & (seen >= length - window)


def fused_causal(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Attend a run of one row's tokens; without a mask the run is the row's beginning.

    Shapes:
        query: [1, H, T, D].   keys, values: [1, K, S, D].   mask: [T, S], additive.
        returns: [T, H, D].
    """
    attended = scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return attended[0].transpose(0, 1)


def tiled_causal(query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
    """Attend the last T of S tokens causally, a tile of queries at a time.

    The heads that share keys are folded into rows, so that each product is a large one.

    Shapes:
        query: [1, H, T, D].   keys, values: [1, K, S, D].   returns: [T, H, D].
    """
    _, H, T, D = query.shape
    K, S = keys.shape[1:3]
    scale = D**-0.5 if scale is None else scale
    # [1, H, T, D] -> [K, T, H/K, D]: head h shares the keys of h // (H/K)
    grouped = query[0].view(K, H // K, T, D).transpose(1, 2)
    keys_t, values = keys[0].transpose(1, 2), values[0]
    out = query.new_empty(T, H, values.shape[2])
    for start in range(0, T, _TILE):
        end = min(T, start + _TILE)
        seen = S - T + end
        rows = grouped[:, start:end].reshape(K, -1, D)
        scores = torch.bmm(rows, keys_t[:, :, :seen]).float().mul_(scale)
        corner = scores.view(K, end - start, H // K, seen)[..., seen - (end - start) :]
        corner.masked_fill_(_future(end - start, query.device), float("-inf"))
        tile = torch.bmm(scores.softmax(-1).to(query.dtype), values[:, :seen])
        out[start:end] = tile.view(K, end - start, H // K, -1).transpose(0, 1).flatten(1, 2)
    return out


def _future(size: int, device: torch.device) -> Tensor:
    """Return which of a tile's own keys lie ahead of each query, as bool [T, 1, T]."""
    return torch.ones(size, size, dtype=torch.bool, device=device).triu_(1)[:, None]


def lane_attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Attend one token of each row; heads that share keys are one row's queries.

    Shapes:
        query: [H, B, D].   keys, values: [B, K, S, D].   mask: [B, 1, 1, S], additive.
        returns: [B, H, D].
    """
    H, B, D = query.shape
    K = keys.shape[1]
    grouped = query.transpose(0, 1).reshape(B, K, H // K, D)
    attended = scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scale)
    return attended.reshape(B, H, -1)


def explicit_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attend score by score, for what torch's fused kernels cannot do; see `attention.Wanted`.

    Shapes:
        query: [B, H, T, D].   keys, values: [B, K, S, D].   mask: [T, S] or [B, 1, 1, S], additive.
        sinks: [H].   returns: [B, H, T, D].
    """
    B, H, T, D = query.shape
    K, S = keys.shape[1:3]
    # heads that share keys are one matrix of queries: [B, H, T, D] -> [B, K, H/K * T, D]
    grouped = query.reshape(B, K, H // K * T, D)
    scores = (grouped @ keys.transpose(2, 3)).float().mul_(scale).view(B, H, T, S)
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat((scores, sinks.float().view(1, H, 1, 1).expand(B, H, T, 1)), -1)
    weights = scores.softmax(-1)[..., :S].to(query.dtype)
    return (weights.reshape(B, K, -1, S) @ values).view(B, H, T, -1)
