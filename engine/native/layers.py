"""Decoder layers of the usual shape, computed by two calls instead of some forty operations.

Decides which layers of a model are replaced: those built from exactly the parts that Llama's are
(optionally biases, and norms of queries and keys), and found to compute the same. What else can be
replaced is replaced leaf by leaf: linear layers and norms. Models stay transformers' own around
them. May import torch, engine.native.slab, engine.norms and engine.steps.
"""

from typing import Any

import torch
from torch import Tensor, nn

from engine.native.slab import BlockSlab
from engine.norms import is_rms_norm
from engine.steps import PackedStep

_ops = torch.ops.docmill

_LAYER_PARTS = frozenset({"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"})
_PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
_HEAD_NORMS = frozenset({"q_norm", "k_norm"})
_MLP_PARTS = frozenset({"gate_proj", "up_proj", "down_proj"})


class NativeLinear(nn.Module):
    """A linear layer over a weight in panels; the original weight is not kept."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed: Tensor = _ops.pack(weight.detach().contiguous())
        self.bias = None if bias is None else bias.detach().float()
        self.dtype = weight.dtype

    @property
    def weight(self) -> Tensor:
        """The weight in its usual layout, for code that looks at it. Cost: one copy."""
        # [N / 32, K / 2, 32, 2] -> [N, K]
        rows = self.packed.transpose(1, 2).reshape(-1, self.in_features)
        return rows[: self.out_features]

    def forward(self, hidden: Tensor) -> Tensor:
        """Multiply."""
        out = self.rows(hidden.reshape(-1, self.in_features))
        return out.view(*hidden.shape[:-1], self.out_features)

    def rows(self, hidden: Tensor, *, gated: bool = False) -> Tensor:
        """Multiply rows; if wanted, gate one half of the products by the other.

        Shapes:
            hidden: [T, K].   returns: [T, N], gated [T, N / 2].
        """
        out: Tensor = _ops.linear(hidden, self.packed, self.out_features, self.bias, None, gated)
        return out


class NativeHead(NativeLinear):
    """The output head: scores stay fp32, as rounded to bf16 the best two are often equal."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Multiply; returns fp32."""
        rows = hidden.reshape(-1, self.in_features)
        out: Tensor = _ops.linear_exact(rows, self.packed, self.out_features, self.bias)
        return out.view(*hidden.shape[:-1], self.out_features)


class NativeNorm(nn.Module):
    """Llama's RMS norm in one pass."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.exact = weight.detach().float()
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        out: Tensor = _ops.rms_norm(rows, self.exact, self.epsilon)
        return out.view(hidden.shape)


class NativeLayer(nn.Module):
    """One decoder layer: norm, attention and residual, norm, gated MLP and residual.

    `is_last`: only scores are made of what comes out. So only the tokens whose scores are wanted
    are computed beyond their keys and values; the others' rows come out as they went in.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.is_last = False
        self.layer_idx: int = attention.layer_idx
        self.sliding_window: int | None = getattr(attention, "sliding_window", None)
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.qkv_proj = _joined(projections)
        self.o_proj = NativeLinear(attention.o_proj.weight, attention.o_proj.bias)
        self.gate_up_proj = _interleaved(mlp.gate_proj, mlp.up_proj)
        self.down_proj = NativeLinear(mlp.down_proj.weight, mlp.down_proj.bias)
        # all that the kernels are handed in every pass, gathered once
        D: int = attention.head_dim
        H, K = (projection.out_features // D for projection in projections[:2])
        self._heads = H, K, D
        self._scale: float = attention.scaling
        self._before = *_of_norm(layer.input_layernorm), *_of_linear(self.qkv_proj)
        self._head_norms = _of_head_norms(attention)
        self._after = (
            *_of_linear(self.o_proj),
            *_of_norm(layer.post_attention_layernorm),
            *_of_linear(self.gate_up_proj),
            *_of_linear(self.down_proj),
        )

    def forward(
        self,
        hidden_states: Tensor,
        *args: Any,
        packed: PackedStep,
        position_embeddings: tuple[Tensor, Tensor],
        **kwargs: Any,
    ) -> Tensor:
        """Compute the layer for packed tokens; [1, T, E]."""
        hidden = hidden_states[0]
        assert isinstance(packed.slab, BlockSlab)
        H, K, D = self._heads
        held = packed.slab.layer(self.layer_idx, K, D, hidden)
        turns = (each[0] for each in position_embeddings)
        # turned queries, and what has been stored
        qkv = _ops.begin_layer(
            hidden, *self._before, packed.where, *held, *self._heads, *turns, *self._head_norms
        )
        packed.make_copies(self.layer_idx)
        packed.windows[self.layer_idx] = self.sliding_window
        limits = *self._heads, self._scale, self.sliding_window or 0
        keep = packed.keep if self.is_last else None
        if keep is None or len(keep) == len(hidden):
            out: Tensor = _ops.end_layer(
                hidden, qkv, *held, packed.run_table, *limits, *self._after
            )
        else:
            kept = hidden[keep], qkv[:, : H * D][keep]
            ended = _ops.end_layer(*kept, *held, packed.kept_table, *limits, *self._after)
            out = hidden.index_copy(0, keep, ended)
        return out[None]


def is_usual_layer(module: Any) -> bool:
    """Say whether a module has the parts that `NativeLayer` computes, by name, kind and size.

    What it does with them is for the caller to compare.
    """
    attention: Any = getattr(module, "self_attn", None)
    mlp: Any = getattr(module, "mlp", None)
    if not (
        _has_just(module, _LAYER_PARTS)
        and (_has_just(attention, _PROJECTIONS) or _has_just(attention, _PROJECTIONS | _HEAD_NORMS))
        and (_has_just(mlp, _MLP_PARTS) or _has_just(mlp, _MLP_PARTS | {"act_fn"}))
    ):
        return False
    named = (getattr(attention, name, None) for name in _HEAD_NORMS)
    head_norms = [norm for norm in named if norm is not None]
    norms = [module.input_layernorm, module.post_attention_layernorm, *head_norms]
    linears = [getattr(attention, name) for name in _PROJECTIONS]
    linears += [getattr(mlp, name) for name in _MLP_PARTS]
    return (
        all(is_rms_norm(norm) and len(norm.weight) % 16 == 0 for norm in norms)
        and len({norm.variance_epsilon for norm in head_norms}) <= 1
        and all(type(linear) is nn.Linear for linear in linears)
        and all(linear.weight.dtype is torch.bfloat16 for linear in linears)
        and _agree_on_bias(attention.q_proj, attention.k_proj, attention.v_proj)
        and _agree_on_bias(mlp.gate_proj, mlp.up_proj)
        and mlp.gate_proj.out_features % 16 == 0
        and all(linear.in_features % 2 == 0 for linear in linears)
        and isinstance(getattr(attention, "head_dim", None), int)
        and attention.head_dim % 32 == 0
    )


def _agree_on_bias(*linears: Any) -> bool:
    return len({linear.bias is None for linear in linears}) == 1


def _has_just(module: Any, names: frozenset[str]) -> bool:
    return isinstance(module, nn.Module) and {name for name, _ in module.named_children()} == names


def _of_norm(norm: Any) -> tuple[Tensor, float]:
    return norm.weight.detach().float(), norm.variance_epsilon


def _of_head_norms(attention: Any) -> tuple[Tensor | None, Tensor | None, float]:
    norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    if norms[0] is None or norms[1] is None:
        return None, None, 0.0
    (query, epsilon), (key, _) = map(_of_norm, norms)
    return query, key, epsilon


def _of_linear(linear: NativeLinear) -> tuple[Tensor, Tensor | None]:
    return linear.packed, linear.bias


def _joined(linears: list[Any]) -> NativeLinear:
    """Make one linear layer of several that read the same."""
    has_bias = linears[0].bias is not None
    bias = torch.cat([linear.bias for linear in linears]) if has_bias else None
    return NativeLinear(torch.cat([linear.weight for linear in linears]), bias)


def _interleaved(gate: Any, up: Any) -> NativeLinear:
    """Make one linear layer whose panels hold 16 rows of `gate`, then the same 16 of `up`."""

    def mixed(a: Tensor, b: Tensor) -> Tensor:
        panels = [each.reshape(-1, 16, *each.shape[1:]) for each in (a, b)]
        return torch.stack(panels, 1).reshape(-1, *a.shape[1:])

    bias = None if gate.bias is None else mixed(gate.bias, up.bias)
    return NativeLinear(mixed(gate.weight, up.weight), bias)
