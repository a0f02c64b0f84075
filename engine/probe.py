"""Whether the packed path serves a model: found out by asking it, not by knowing its name.

Decides what is asked. A model is packed only if its configuration holds nothing that couples rows,
if it asks our attention for nothing that is not built, and if two rows computed packed, cut and
decoded come out as each does alone. What other paths are asked is `engine.stateful_probe`'s. May
import torch, transformers, docmill.errors and the modules of this package below it.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import get_layer_types_and_kwargs

from docmill.errors import EngineError, ModelLoadError
from engine import attention
from engine.loading import LoadedModel
from engine.slab import Slot
from engine.steps import PackedStep, Run
from engine.unsupported import Unsupported

#: Prompt lengths of the two rows: unlike, yet in one lane, so that the lane's mask is used.
_LENGTHS = (8, 9)

#: Largest relative error of the scores: rounding gives 1e-5 in fp32 and 2e-2 in bf16.
_TOLERANCE = {torch.float32: 1e-3}
_TOLERANCE_HALF = 8e-2

#: Rotary embeddings whose angles depend on the longest row of a batch, or of a pass.
_COUPLED_ROPE = frozenset({"dynamic", "longrope"})


def use_packed_attention(loaded: LoadedModel, alone: Tensor) -> str | None:
    """Switch a model to packed attention; return why not, and leave it as it was, if that is wrong.

    Args:
        loaded: A model as it was loaded.
        alone: What `single_scores` returned for it.

    Cost: three passes over a few tokens.
    """
    model = loaded.model
    obstacle = _obstacle(model)
    if obstacle is not None:
        return obstacle
    own = model.config._attn_implementation
    model.set_attn_implementation(attention.NAME)
    for way in attention.ways(model.dtype, loaded.device):
        loaded.way = way
        try:
            obstacle = packed_difference(loaded, alone)
        except (Unsupported, EngineError) as error:
            obstacle = str(error)
        if obstacle is None:
            return None
    model.set_attn_implementation(own)
    return obstacle


def single_scores(loaded: LoadedModel) -> Tensor:
    """Return the scores after two short prompts, each computed alone by transformers; [2, V].

    Raises:
        ModelLoadError: The model fails, or its scores are not finite.
    """
    try:
        with torch.inference_mode():
            prompts = [prompt_for(loaded, length)[None] for length in _LENGTHS]
            each = [loaded.model(input_ids=ids, use_cache=False).logits[0, -1] for ids in prompts]
            scores = torch.stack(each)
    except Exception as error:
        name = type(loaded.model).__name__
        raise ModelLoadError(f"{name} cannot be served: {type(error).__name__}: {error}") from error
    if not scores.isfinite().all():
        raise ModelLoadError(
            f"{type(loaded.model).__name__}: scores are not finite in {loaded.model.dtype}; "
            "try dtype float32, or fetch the model again"
        )
    return scores


def _obstacle(model: Any) -> str | None:
    """Return what in the model's configuration rules the packed path out."""
    config = model.config.get_text_config(decoder=True)
    if getattr(model, "_is_stateful", False):
        return "its cache is stateful"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention cannot be replaced"
    if coupled := coupled_rope(config):
        return f"its rotary embedding is {', '.join(coupled)}"
    others = set(get_layer_types_and_kwargs(config)[0]) - {"full_attention", "sliding_attention"}
    return f"it has layers of type {', '.join(sorted(others))}" if others else None


def coupled_rope(config: Any) -> list[str]:
    """Return the kinds of rotary embedding whose angles depend on what else is computed."""
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    return sorted(_COUPLED_ROPE & {each.get("rope_type") for each in (rope, *nested)})


def prompt_for(loaded: LoadedModel, length: int, shift: int = 0) -> Tensor:
    """Return a prompt without meaning, like no other; [length]."""
    return (torch.arange(length, device=loaded.device) * 7 + length + shift) % loaded.vocab_size


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest relative error of scores that is taken for rounding."""
    return _TOLERANCE.get(dtype, _TOLERANCE_HALF)


def packed_difference(loaded: LoadedModel, alone: Tensor) -> str | None:
    """Return how packed rows differ from single ones, None if only by rounding."""
    packed, windows = packed_scores(loaded)
    kwargs = get_layer_types_and_kwargs(loaded.model.config.get_text_config(decoder=True))[1]
    expected = {layer: each.get("sliding_window") for layer, each in enumerate(kwargs)}
    if windows != expected:
        return "its layers do not say how far they look back"
    error = float((packed.float() - alone.float()).norm() / alone.float().norm())
    close = error <= tolerance(loaded.model.dtype)
    return None if close else f"packed rows differ from single ones by {error:.1e}"


def packed_scores(loaded: LoadedModel) -> tuple[Tensor, dict[int, int | None]]:
    """Compute both prompts' beginnings together, go on with one of them, then decode both.

    Returns:
        The scores after each, [2, V], and the sliding window that each layer asked for.
    """
    prompts = [prompt_for(loaded, length) for length in _LENGTHS]
    slab = loaded.new_slab()
    slots = [Slot(length) for length in _LENGTHS]
    slab.admit(slots)

    def forward(*parts: tuple[int, int, int]) -> tuple[Tensor, PackedStep]:
        """Compute tokens from `start` to `end` of the rows, packed in that order."""
        positions = torch.cat([torch.arange(a, b, device=loaded.device) for _, a, b in parts])
        ids = torch.cat([prompts[row][a:b] for row, a, b in parts])
        bases = [torch.full((b - a,), slots[row].base) for row, a, b in parts]
        ends = list(accumulate(b - a for _, a, b in parts))
        runs = [
            Run(end - (b - a), end, slots[row].base, b, slots[row].stride)
            for end, (row, a, b) in zip(ends, parts, strict=True)
        ]
        step = PackedStep(slab, positions + torch.cat(bases).to(loaded.device), runs)
        keep = torch.tensor(ends, device=loaded.device) - 1
        return loaded.forward(ids, positions, keep, step), step

    last = [length - 1 for length in _LENGTHS]
    forward((0, 0, last[0]), (1, 0, last[1] // 2))
    forward((1, last[1] // 2, last[1]))
    order = [slots.index(slot) for lane in slab.lanes for slot in lane.slots]
    scores, step = forward(*((row, last[row], _LENGTHS[row]) for row in order))
    return scores[[order.index(row) for row in range(2)]], step.windows
