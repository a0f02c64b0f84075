"""Whether rows of equal length can run together with transformers' own cache; else the refusal.

Decides what rows computed together are compared with, and how far they may differ. A model whose
rows are wrong even so cannot be served. May import torch, transformers, docmill.errors and the
modules of this package below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from docmill.errors import ModelLoadError
from engine.loading import LoadedModel
from engine.probe import coupled_rope, prompt_for, tolerance
from engine.stateful_forward import forward_group

#: Tokens computed one by one, as answers are: some models' caches go wrong at the second only.
NUM_DECODED = 4

#: Tokens of a prompt's last chunk: few, so that a layer which forgets the others is found out.
LAST_CUT = 2

#: Tokens of the two prompts: enough to be cut, and to fill windows of a few tokens.
_LENGTH = 13

#: A state's layer, kind and number; `RaggedMixer` keeps them under the same.
StateKey = tuple[int, str, int]


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What rows came to: [B, V] scores, and the recurrent state of each layer, [B, ...].

    States are compared because they show at once what scores may show much later.
    """

    scores: Tensor
    states: dict[StateKey, Tensor]


def may_cut_prompts(loaded: LoadedModel) -> bool:
    """Say whether a group's prompts may be computed in chunks.

    Raises:
        ModelLoadError: Rows of equal length, computed together, are not what each is alone.

    Cost: a dozen passes over a few tokens.
    """
    length = min(_LENGTH, loaded.context_len)
    prompts = [prompt_for(loaded, length, shift) for shift in range(2)]
    expected = alone(loaded, prompts)
    rest = max(1, length - NUM_DECODED)
    decoded = [1] * (length - rest)
    if wrong := difference(loaded, _grouped(loaded, prompts, [rest, *decoded]), expected):
        raise ModelLoadError(
            f"{type(loaded.model).__name__} cannot be served: {wrong}, even at equal lengths; "
            "choose another model"
        )
    if coupled_rope(loaded.model.config.get_text_config(decoder=True)) or rest <= LAST_CUT:
        return False
    parts = [rest - LAST_CUT, LAST_CUT, *decoded]
    return difference(loaded, _grouped(loaded, prompts, parts), expected) is None


def alone(loaded: LoadedModel, prompts: Sequence[Tensor]) -> Outcome:
    """Compute each prompt alone and in one piece, with transformers' own cache.

    Raises:
        ModelLoadError: The model fails.
    """
    each = [_grouped(loaded, [prompt], [len(prompt)]) for prompt in prompts]
    states = {key: torch.cat([one.states[key] for one in each]) for key in each[0].states}
    return Outcome(torch.cat([one.scores for one in each]), states)


def difference(loaded: LoadedModel, got: Outcome, expected: Outcome) -> str | None:
    """Return how rows computed together differ from single ones, None if only by rounding."""
    if missing := expected.states.keys() - got.states.keys():
        return f"its layer {min(missing)[0]} keeps its state elsewhere"
    pairs = [(got.scores, expected.scores)]
    pairs += [(got.states[key], state) for key, state in expected.states.items()]
    errors = [_relative(*pair) for pair in pairs]
    # written so that NaN is wrong too
    wrong = [error for error in errors if not error <= tolerance(loaded.model.dtype)]
    return f"rows together differ from single ones by {wrong[0]:.1e}" if wrong else None


def _relative(got: Tensor, expected: Tensor) -> float:
    size = expected.float().norm()
    # a state that is all zeros, as of a layer that has seen nothing yet, must be zeros
    return float((got.float() - expected.float()).norm() / size) if size else float(got.any())


def _grouped(loaded: LoadedModel, prompts: Sequence[Tensor], parts: Sequence[int]) -> Outcome:
    """Compute prompts of one length together, in parts."""
    cache = DynamicCache(config=loaded.model.config)
    scores, past = torch.empty(0), 0
    try:
        for ids in torch.split(torch.stack(list(prompts)), list(parts), dim=1):
            scores = forward_group(loaded, ids, past, cache)
            past += ids.shape[1]
    except Exception as error:
        name = type(loaded.model).__name__
        raise ModelLoadError(f"{name} cannot be served: {type(error).__name__}: {error}") from error
    return Outcome(scores, _recurrent(cache))


def _recurrent(cache: DynamicCache) -> dict[StateKey, Tensor]:
    """Return the states of a cache's recurrent layers."""
    return {
        (layer, kind, number): state
        for layer, held in enumerate(cache.layers)
        for kind in ("conv", "recurrent")
        for number, state in getattr(held, f"{kind}_states", {}).items()
        if state is not None
    }
