"""Builds the engine that the settings ask for.

Decides nothing about how one runs. Imports torch only when it is asked for, and then no more of
transformers than models need: half of the start is imports.
"""

from collections.abc import Callable
from pathlib import Path

from engine.base import Capacity, Engine
from engine.fake import FakeEngine
from workers import garbage
from workers.models import ModelFiles
from workers.settings import Settings

#: Builds an engine for a model; replaced in tests that need a slow or a failing one.
Factory = Callable[[Settings, ModelFiles], Engine]


def create(settings: Settings, files: ModelFiles) -> Engine:
    """Load the engine. Cost: seconds to minutes for a real model.

    Raises:
        ModelLoadError: The model cannot be loaded here.
    """
    if files.path is None:
        capacity = Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens)
        return FakeEngine(files.name, capacity=capacity)
    with garbage.left_alone():
        return _create_torch(settings, files.path, files)


def _create_torch(settings: Settings, path: Path, files: ModelFiles) -> Engine:
    # torch takes seconds to import, and a fake engine must run without it
    from engine import lean

    lean.import_models()  # before the next line imports all of transformers' common parts
    from engine.options import Limits
    from engine.torch_engine import TorchEngine

    return TorchEngine.load(
        path,
        model_name=files.name,
        dtype=settings.dtype,
        device=settings.device,
        threads=settings.threads,
        max_context_len=files.context_len,
        limits=Limits(settings.max_rows, settings.max_batch_tokens),
    )
