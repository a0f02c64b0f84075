"""Whether rows of unequal length can run together in a stateful model: found out by asking it.

Decides which parts of a model are replaced, by what they have and not by the model's name, and
takes everything back if two rows computed together do not come out as each does alone. May import
torch, transformers and the modules of this package below it.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import get_layer_types_and_kwargs

from docmill.errors import EngineError
from engine.loading import LoadedModel
from engine.probe import coupled_rope, prompt_for
from engine.ragged import RaggedPass, Run
from engine.ragged_attention import NAME
from engine.ragged_compressor import RaggedCompressor, can_replace
from engine.ragged_forward import forward
from engine.ragged_mixer import RaggedMixer
from engine.ragged_store import RowStore
from engine.stateful_probe import (
    LAST_CUT,
    NUM_DECODED,
    Outcome,
    StateKey,
    alone,
    difference,
)
from engine.unsupported import Unsupported

#: Layers that only our attention function has to serve, or that keep nothing.
_ATTENTION = frozenset({"full_attention", "sliding_attention", "dummy"})

#: What a module asks of its cache that keeps a state of one size, whatever the row's length.
_RECURRENT = frozenset({"update_conv_state", "update_recurrent_state"})

#: The longest prompt of the check where nothing is compressed; it is cut and decoded all the same.
_SHORT = 16

_Replaced = list[tuple[nn.Module, str, nn.Module]]


def use_ragged(loaded: LoadedModel) -> str | None:
    """Let a model run rows of unequal length; return why not, and leave it as it was, if it cannot.

    Raises:
        ModelLoadError: The model fails even on one row.

    Cost: passes over twice the tokens of its longest compression window, or over a few.
    """
    model = loaded.model
    config = model.config.get_text_config(decoder=True)
    if coupled := coupled_rope(config):
        return f"its rotary embedding is {', '.join(coupled)}"
    types, kwargs = get_layer_types_and_kwargs(config)
    parts = _replaceable(model, kwargs)
    if left := _unserved(types, parts):
        return f"it has layers of type {', '.join(left)}"
    longest = min(2 * _reach(parts), loaded.context_len)
    if longest < _SHORT:
        return f"it has room for {longest} tokens only"
    prompts = [prompt_for(loaded, length) for length in (longest // 2 + 1, longest)]
    expected = alone(loaded, prompts)
    windows = {layer: each.get("sliding_window") for layer, each in enumerate(kwargs)}
    before = [(parent, name, getattr(parent, name)) for parent, name, _ in parts]
    own = model.config._attn_implementation
    _put(parts)
    model.set_attn_implementation(NAME)
    try:
        obstacle = _difference(loaded, prompts, expected, windows)
    except (Unsupported, EngineError) as error:
        obstacle = str(error)
    if obstacle is not None:
        _put(before)
        model.set_attn_implementation(own)
    return obstacle


def _unserved(types: Sequence[str], parts: _Replaced) -> list[str]:
    """Return the types of layers that neither our attention nor a replaced part serves."""
    served = {
        getattr(owner, "layer_idx", None) for parent, _, new in parts for owner in (parent, new)
    }
    left = {kind for layer, kind in enumerate(types) if layer not in served}
    return sorted(left - _ATTENTION)


def _reach(parts: _Replaced) -> int:
    """Return how many tokens it takes until everything that is replaced has worked."""
    rates = [new.inner.compress_rate for _, _, new in parts if isinstance(new, RaggedCompressor)]
    return max(rates, default=_SHORT // 2)


def _put(parts: _Replaced) -> None:
    for parent, name, module in parts:
        setattr(parent, name, module)


def _replaceable(model: nn.Module, kwargs: Sequence[dict[str, Any]]) -> _Replaced:
    """Return what is to be replaced: the module it hangs on, its name there, and the new one."""
    parts: _Replaced = []
    for parent in model.modules():
        name: str
        child: Any
        for name, child in parent.named_children():
            if hasattr(parent, "layer_idx") and can_replace(child):
                parts.append((parent, name, RaggedCompressor(child)))
            elif _is_mixer(child):
                num_states = kwargs[child.layer_idx].get("number_of_states", 1)
                parts.append((parent, name, RaggedMixer(child, num_states)))
    return parts


def _is_mixer(module: nn.Module) -> bool:
    """Say whether a module keeps recurrent states in the cache, by what its own code calls."""
    if not isinstance(getattr(module, "layer_idx", None), int):
        return False
    methods = [inspect.unwrap(each) for each in vars(type(module)).values() if callable(each)]
    codes = [each.__code__ for each in methods if inspect.isfunction(each)]
    return any(_RECURRENT & set(code.co_names) for code in codes)


def _difference(
    loaded: LoadedModel,
    prompts: Sequence[Tensor],
    expected: Outcome,
    windows: dict[int, int | None],
) -> str | None:
    """Return how rows computed together differ from single ones, None if only by rounding."""
    got, asked = _together(loaded, prompts, list(expected.states))
    if any(window is not None and asked.get(layer) != window for layer, window in windows.items()):
        return "its layers do not say how far they look back"
    return difference(loaded, got, expected)


def _together(
    loaded: LoadedModel, prompts: Sequence[Tensor], wanted: Sequence[StateKey]
) -> tuple[Outcome, dict[int, int | None]]:
    """Compute the first prompt and most of the second, the rest of that, and both ends by tokens.

    Return what came of it, with the states that are wanted, and the windows that layers asked for.
    """
    store = RowStore()
    ends = [len(prompt) - NUM_DECODED for prompt in prompts]
    store.admit(2, len(prompts[1]))
    cut = ends[1] - LAST_CUT

    def run(
        runs: list[Run], parts: list[Tensor], decoding: bool = False
    ) -> tuple[Tensor, RaggedPass]:
        ragged = RaggedPass(store, runs, decoding, loaded.device)
        last = torch.tensor([each.end - 1 for each in runs], device=loaded.device)
        return forward(loaded, torch.cat(parts), ragged, last), ragged

    def one_more(done: int) -> tuple[Tensor, RaggedPass]:
        both = [Run(row, row, row + 1, end + done) for row, end in enumerate(ends)]
        tokens = [prompt[end + done, None] for prompt, end in zip(prompts, ends, strict=True)]
        return run(both, tokens, decoding=True)

    first = [Run(0, 0, ends[0], 0), Run(1, ends[0], ends[0] + cut, 0)]
    run(first, [prompts[0][: ends[0]], prompts[1][:cut]])
    run([Run(1, 0, ends[1] - cut, cut)], [prompts[1][cut : ends[1]]])
    for done in range(NUM_DECODED - 1):
        one_more(done)
    scores, ragged = one_more(NUM_DECODED - 1)
    states = {key: state for key in wanted if (state := store.find(key)) is not None}
    return Outcome(scores, states), ragged.windows_asked
