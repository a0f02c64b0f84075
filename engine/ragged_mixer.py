"""Recurrent layers (linear attention, short convolutions) for rows of unequal length.

Decides which tokens such a layer computes together: one token each of all rows while decoding, one
row's run of tokens otherwise. The layer itself stays transformers' own and is handed transformers'
own cache layer, filled with the states of just those rows. May import torch, transformers and the
modules of this package below it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, LinearAttentionLayer

from engine.ragged import RaggedPass
from engine.ragged_forward import RaggedCache

_KINDS = ("conv", "recurrent")


class _OneLayerCache(Cache):
    """A cache of a single layer, under its number."""

    def __init__(self, layer_idx: int, layer: LinearAttentionLayer) -> None:
        super().__init__(layers=[])
        self.layers: Any = {layer_idx: layer}


class RaggedMixer(nn.Module):
    """Runs a recurrent layer on each row by itself; with another cache it is what it replaces."""

    def __init__(self, inner: Any, num_states: int) -> None:
        super().__init__()
        self.inner = inner
        self.layer_idx: int = inner.layer_idx
        self._num_states = num_states

    def forward(self, hidden_states: Tensor, cache: Any = None, **kwargs: Any) -> Any:
        """Mix each row's tokens; [1, T, E]."""
        if not isinstance(cache, RaggedCache):
            return self.inner(hidden_states=hidden_states, cache=cache, **kwargs)
        ragged = cache.ragged
        kwargs.pop("ragged", None)
        if ragged.decoding:
            groups = [(0, len(ragged.runs), slice(0, len(ragged.runs)), True)]
        else:
            groups = [(run.row, 1, slice(run.start, run.end), run.past > 0) for run in ragged.runs]
        mixed = []
        for row, num_rows, tokens, going_on in groups:
            part = hidden_states[0, tokens].view(num_rows, -1, hidden_states.shape[-1])
            rows = slice(row, row + num_rows)
            layer = self._layer(ragged, rows) if going_on else self._fresh()
            own_cache = _OneLayerCache(self.layer_idx, layer)
            out = self.inner(hidden_states=part, cache=own_cache, **kwargs)
            self._keep(ragged, rows, layer)
            mixed.append(out.flatten(0, 1))
        return torch.cat(mixed)[None]

    def _fresh(self) -> LinearAttentionLayer:
        return LinearAttentionLayer(number_of_states=self._num_states)

    def _layer(self, ragged: RaggedPass, rows: slice) -> LinearAttentionLayer:
        """Return a cache layer whose states are views of the rows' own."""
        layer: Any = self._fresh()
        for kind, number, state in self._states(ragged):
            view = state[rows]
            getattr(layer, f"{kind}_states")[number] = view
            getattr(layer, f"is_{kind}_states_initialized")[number] = True
            layer.has_previous_state[number] = True
            if kind == "conv":
                layer.conv_kernel_size[number] = view.shape[-1]
            layer.dtype, layer.device = view.dtype, view.device
        filled: LinearAttentionLayer = layer
        return filled

    def _keep(self, ragged: RaggedPass, rows: slice, layer: LinearAttentionLayer) -> None:
        """Put the states back where the layer has not changed them in place."""
        for kind in _KINDS:
            for number, new in getattr(layer, f"{kind}_states").items():
                if new is not None:
                    key = (self.layer_idx, kind, number)
                    state = ragged.store.fixed(key, new.shape[1:], new)[rows]
                    if state.data_ptr() != new.data_ptr():
                        state.copy_(new)

    def _states(self, ragged: RaggedPass) -> list[tuple[str, int, Tensor]]:
        found = []
        for kind in _KINDS:
            for number in range(self._num_states):
                state = ragged.store.find((self.layer_idx, kind, number))
                if state is not None:
                    found.append((kind, number, state))
        return found
