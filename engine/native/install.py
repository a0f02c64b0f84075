"""Puts the kernels into a model, where they compute what it computes.

Decides which of a model's parts are replaced, by comparing each with what replaces it on what the
model itself hands it. May import torch and the modules of engine below it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from engine.loading import LoadedModel
from engine.modules import children
from engine.native.build import why_unavailable
from engine.native.layers import NativeHead, NativeLayer, NativeLinear, NativeNorm, is_usual_layer
from engine.native.slab import BlockSlab
from engine.norms import is_rms_norm
from engine.slab import Slab
from engine.steps import PackedStep
from engine.unsupported import Unsupported

#: Largest relative error of what a part adds: bf16 rounds to 4e-3, and its sums do so a few times.
_TOLERANCE = 2e-2

#: Computes two unlike rows, also together, on a slab as the model now needs it; returns scores.
Probe = Callable[[], Tensor]


def use_kernels(loaded: LoadedModel, probe: Probe) -> str | None:
    """Replace what the kernels compute as well; return why nothing was, None if something was.

    Cost: the model's weights are copied part by part, each layer runs on a few tokens, and the
    probe runs three times.
    """
    if loaded.device.type != "cpu" or loaded.model.dtype is not torch.bfloat16:
        return "they are for bfloat16 on a CPU"
    if loaded.way == "gathered":
        return "its cache holds something else than what it attends"
    reason = why_unavailable()
    if reason is not None:
        return reason
    loaded.new_slab = BlockSlab
    try:
        with _observed(loaded.model) as seen:
            probe()
    except Unsupported as error:
        loaded.new_slab = Slab
        return str(error)
    for parent, name, child in children(loaded.model):
        if child not in seen or _minds_its_place(child, *seen[child], loaded.context_len - 1):
            continue
        if (native := _alike(child, *seen[child])) is not None:
            setattr(parent, name, native)
    head = loaded.model.get_output_embeddings()
    for parent, name, child in children(loaded.model):
        if type(child) is nn.Linear and child.weight.dtype is torch.bfloat16:
            if child.in_features % 2 == 0:
                replacing = NativeHead if child is head else NativeLinear
                setattr(parent, name, replacing(child.weight, child.bias))
        elif is_rms_norm(child) and len(child.weight) % 16 == 0:
            setattr(parent, name, NativeNorm(child.weight, child.variance_epsilon))
    _spare_last_layer(loaded.model, probe)
    return None


def _spare_last_layer(model: nn.Module, probe: Probe) -> None:
    """Let the last layer compute only what scores are made of, if that is all it is read for."""
    native = [module for module in model.modules() if isinstance(module, NativeLayer)]
    if native:
        whole = probe()
        native[-1].is_last = True
        native[-1].is_last = torch.equal(whole, probe())


Seen = tuple[tuple[Any, ...], dict[str, Any], Tensor]


@contextmanager
def _observed(model: nn.Module) -> Iterator[dict[nn.Module, Seen]]:
    """Note what goes into layers of the usual shape and what comes out, in the first pass."""
    seen: dict[nn.Module, Seen] = {}

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if layer not in seen and isinstance(out, Tensor):
            seen[layer] = args, kwargs, out

    hooks = [
        module.register_forward_hook(note, with_kwargs=True)
        for module in model.modules()
        if is_usual_layer(module)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _alike(
    layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], expected: Tensor
) -> NativeLayer | None:
    """Return the layer that replaces one, None if it computes something else."""
    native = NativeLayer(layer)
    step: PackedStep = kwargs["packed"]
    window = step.windows[native.layer_idx]
    try:
        with torch.inference_mode():
            out = native(*args, **kwargs)
    except RuntimeError:  # sizes that the kernels refuse
        return None
    hidden = args[0].float()
    added, theirs = out.float() - hidden, expected.float() - hidden
    alike = window == native.sliding_window and _close(added, theirs)
    return native if alike and _alike_far_out(layer.mlp, native) else None


def _minds_its_place(
    layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], expected: Tensor, furthest: int
) -> bool:
    """Say whether a layer makes other use of positions than to turn queries and keys.

    Some scale their queries by it, from the 16,384th token on.
    """
    if (near := kwargs.get("position_ids")) is None:
        return False
    far = torch.full_like(near, furthest)
    with torch.inference_mode():
        return not torch.equal(expected, layer(*args, **kwargs | {"position_ids": far}))


def _alike_far_out(mlp: Any, native: NativeLayer) -> bool:
    """Compare MLPs on values that a few tokens may not show, where some models clamp."""
    size = native.gate_up_proj.in_features
    far = torch.linspace(-64, 64, 4 * size, dtype=torch.bfloat16).view(size, 4).T.contiguous()
    with torch.inference_mode():
        ours = native.down_proj.rows(native.gate_up_proj.rows(far, gated=True))
        return _close(ours.float(), mlp(far).float())


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).norm() <= _TOLERANCE * theirs.norm())
