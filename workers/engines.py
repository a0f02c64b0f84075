"""Builds the engine that the settings ask for.

Decides nothing about how one runs. Imports torch only when it is asked for.
"""

from collections.abc import Callable

from docmill.errors import ConfigError
from engine.base import Capacity, Engine
from engine.fake import FakeEngine
from workers.models import ModelFiles
from workers.settings import Settings

#: Builds an engine for a model; replaced in tests that need a slow or a failing one.
Factory = Callable[[Settings, ModelFiles], Engine]


def create(settings: Settings, files: ModelFiles) -> Engine:
    """Load the engine. Cost: seconds to minutes for a real model.

    Raises:
        ModelLoadError: The model cannot be loaded here.
    """
    capacity = Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens)
    if settings.engine == "fake":
        return FakeEngine(files.name, capacity=capacity)
    return _create_torch(settings, files)


def _create_torch(settings: Settings, files: ModelFiles) -> Engine:
    raise ConfigError("not yet")
