"""Which path serves a model that cannot be packed.

Decides between rows of unequal length, each with a state of its own, and groups of rows of equal
length. May import the modules of this package below it.
"""

from dataclasses import replace

from engine.batch import RunningBatch
from engine.loading import LoadedModel
from engine.options import Limits
from engine.ragged_batch import RaggedBatch
from engine.ragged_setup import use_ragged
from engine.stateful import GroupedBatch
from engine.stateful_probe import may_cut_prompts


def choose_path(
    loaded: LoadedModel, limits: Limits
) -> tuple[type[RunningBatch], Limits, str | None]:
    """Prepare a model for the better path that serves it right.

    Returns:
        What runs its rows, within which limits, and why only rows of equal length run together,
        None if they need not be equal.

    Raises:
        ModelLoadError: Neither path serves it right.
    """
    obstacle = use_ragged(loaded)
    if obstacle is None:
        return RaggedBatch, limits, None
    if not may_cut_prompts(loaded):
        limits = replace(limits, chunk_tokens=loaded.context_len)
    return GroupedBatch, limits, obstacle
