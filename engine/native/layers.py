"""Decoder layers of the usual shape, computed by eight kernels instead of some forty operations.

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
        return self.rows(hidden.reshape(-1, self.in_features)).view(
            *hidden.shape[:-1], self.out_features
        )

    def rows(self, hidden: Tensor, residual: Tensor | None = None, gated: bool = False) -> Tensor:
        """Multiply rows; add `residual`, or gate one half of the products by the other.

        Shapes:
            hidden: [T, K].   residual: [T, N].   returns: [T, N], gated [T, N / 2].
        """
        out: Tensor = _ops.linear(
            hidden, self.packed, self.out_features, self.bias, residual, gated
        )
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
        return self.rows(hidden.reshape(-1, hidden.shape[-1])).view(hidden.shape)

    def rows(self, hidden: Tensor) -> Tensor:
        """Normalise rows; [T, E]."""
        out: Tensor = _ops.rms_norm(hidden, self.exact, self.epsilon)
        return out


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
        self.head_dim: int = attention.head_dim
        self.scaling: float = attention.scaling
        self.sliding_window: int | None = getattr(attention, "sliding_window", None)
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.num_heads = projections[0].out_features // self.head_dim
        self.num_kv_heads = projections[1].out_features // self.head_dim
        self.input_norm = _norm(layer.input_layernorm)
        self.mlp_norm = _norm(layer.post_attention_layernorm)
        self.query_norm, self.key_norm = (
            _norm(norm) if (norm := getattr(attention, name, None)) is not None else None
            for name in ("q_norm", "k_norm")
        )
        self.qkv_proj = _joined(projections)
        self.o_proj = NativeLinear(attention.o_proj.weight, attention.o_proj.bias)
        self.gate_up_proj = _interleaved(mlp.gate_proj, mlp.up_proj)
        self.down_proj = NativeLinear(mlp.down_proj.weight, mlp.down_proj.bias)

    def forward(
        self,
        hidden_states: Tensor,
        *args: Any,
        packed: PackedStep,
        position_embeddings: tuple[Tensor, Tensor],
        **kwargs: Any,
    ) -> Tensor:
        """Compute the layer for packed tokens; [1, T, E]."""
        everyone = hidden_states[0]
        qkv = self.qkv_proj.rows(self.input_norm.rows(everyone))
        self._store(qkv, packed, position_embeddings)
        keep = packed.keep if self.is_last else None
        if keep is None or len(keep) == len(everyone):
            return self._rest(everyone, qkv, packed.run_table, packed)[None]
        kept = self._rest(everyone[keep], qkv[keep], packed.kept_table, packed)
        return everyone.index_copy(0, keep, kept)[None]

    def _store(self, qkv: Tensor, step: PackedStep, turns: tuple[Tensor, Tensor]) -> None:
        """Turn queries and keys in place, [T, (H + 2 K) * D]; store keys and values."""
        norms = self.query_norm, self.key_norm
        weights = (None if norm is None else norm.exact for norm in norms)
        epsilon = 0.0 if norms[0] is None else norms[0].epsilon
        heads = self.num_heads, self.num_kv_heads
        _ops.store(
            qkv,
            step.where,
            *self._held(step, qkv),
            *heads,
            turns[0][0],
            turns[1][0],
            *weights,
            epsilon,
        )
        step.make_copies(self.layer_idx)
        step.windows[self.layer_idx] = self.sliding_window

    def _held(self, step: PackedStep, qkv: Tensor) -> list[Tensor]:
        """Return the keys and values of all rows."""
        assert isinstance(step.slab, BlockSlab)
        return step.slab.layer(self.layer_idx, self.num_kv_heads, self.head_dim, qkv)

    def _rest(self, hidden: Tensor, qkv: Tensor, runs: Tensor, step: PackedStep) -> Tensor:
        """Attend, then compute the MLP, of some tokens; [N, E]."""
        attended = _ops.attend(
            qkv,
            *self._held(step, qkv),
            runs,
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            self.scaling,
            self.sliding_window or 0,
            0.0,
            None,
        )
        hidden = self.o_proj.rows(attended, residual=hidden)
        inner = self.gate_up_proj.rows(self.mlp_norm.rows(hidden), gated=True)
        return self.down_proj.rows(inner, residual=hidden)


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
    norms = [module.input_layernorm, module.post_attention_layernorm]
    norms += [norm for name in _HEAD_NORMS if (norm := getattr(attention, name, None)) is not None]
    linears = [getattr(attention, name) for name in _PROJECTIONS]
    linears += [getattr(mlp, name) for name in _MLP_PARTS]
    return (
        all(is_rms_norm(norm) and len(norm.weight) % 16 == 0 for norm in norms)
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


def _norm(norm: Any) -> NativeNorm:
    return NativeNorm(norm.weight, norm.variance_epsilon)


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
