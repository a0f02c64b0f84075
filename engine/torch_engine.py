"""The engine that runs a transformers model in this process, on a CPU or a CUDA device.

Decides how a model is set up: dtype and device, the path that serves it, and its limits. May
import torch, docmill.errors and the other modules of this package.
"""

import gc
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from docmill.errors import EngineError, ModelLoadError
from engine.base import Capacity, Event, Refill, Row, Sampling, Step
from engine.batch import RunningBatch
from engine.device import choose_device, choose_dtype, release_memory
from engine.linear import can_prepack, prepack
from engine.loading import LoadedModel, load
from engine.native.install import use_kernels
from engine.norms import replace_norms
from engine.options import Limits
from engine.packed import PackedBatch
from engine.probe import (
    packed_difference,
    packed_scores,
    single_scores,
    use_packed_attention,
)
from engine.stateful_path import choose_path

_log = logging.getLogger(__name__)


class TorchEngine:
    """Answers rows with a transformers model; made by `load`."""

    def __init__(
        self,
        loaded: LoadedModel,
        model_name: str,
        limits: Limits,
        batch: type[RunningBatch],
        unpacked_because: str | None = None,
        grouped_because: str | None = None,
    ) -> None:
        self._loaded: LoadedModel | None = loaded
        self._model_name = model_name
        self._limits = limits
        self._context_len = loaded.context_len
        self._batch = batch
        #: Why the model does not run on the packed path; None when it does.
        self.unpacked_because = unpacked_because
        #: Why only rows of equal length run together; None when any do.
        self.grouped_because = grouped_because

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        model_name: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        max_context_len: int | None = None,
        limits: Limits | None = None,
    ) -> "TorchEngine":
        """Load a model directory and find out how to run it.

        Args:
            path: A directory with config, safetensors and tokenizer.
            model_name: The name to serve it under; absent: the directory's.
            dtype: `auto`, `float32`, `bfloat16` or `float16`.
            device: `auto`, `cpu` or `cuda`.
            threads: CPU threads of this process; absent: torch's choice.
            max_context_len: Serve at most this many tokens per row; absent: the model's length.
            limits: Bounds of one batch.

        Raises:
            ModelLoadError: It cannot be served; one line naming the thing and the remedy.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        where = choose_device(device)
        loaded = load(path, where, choose_dtype(dtype, where), max_context_len)
        alone = single_scores(loaded)
        obstacle = use_packed_attention(loaded, alone)
        batch: type[RunningBatch] = PackedBatch
        limits, grouped = limits or Limits(), None
        if obstacle is None:
            _replace_layers(loaded)
            if wrong := packed_difference(loaded, alone):
                raise ModelLoadError(f"{path}: with layers replaced, {wrong}; try another dtype")
        else:
            batch, limits, grouped = choose_path(loaded, limits)
        _log.info(
            "%s: %s on %s, %s path%s",
            type(loaded.model).__name__,
            loaded.model.dtype,
            where,
            "packed" if obstacle is None else "ragged" if grouped is None else "grouped",
            f" ({grouped or obstacle})" if obstacle else "",
        )
        return cls(loaded, model_name or path.name, limits, batch, obstacle, grouped)

    @property
    def model_name(self) -> str:
        """The name the model is served under."""
        return self._model_name

    def capacity(self) -> Capacity:
        """Return what fits at once."""
        return Capacity(self._context_len, self._limits.max_rows, self._limits.max_batch_tokens)

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer rows; see `engine.base.Engine.run`.

        Out of memory, the batch begins again with half its rows; a row that does not fit alone
        fails alone.

        Raises:
            EngineError: The engine is closed, or the model failed on the batch.
        """
        if self._loaded is None:
            raise EngineError("the engine is closed; load it again")
        return self._batch(self._loaded, self._limits, refill, step).run(rows)

    def warm(self, prefixes: Sequence[NDArray[np.uint32]]) -> None:
        """Run two short rows and the prefixes, so that kernels are chosen and memory is touched.

        Cost: what prompts of 320 tokens and the prefixes cost.
        """
        usual = np.zeros(256, dtype=np.uint32)
        room = self._context_len - 2
        rows = [
            Row(f"warm-{index}", prompt[:room], Sampling(max_tokens=2))
            for index, prompt in enumerate([usual, usual[:64], *prefixes])
            if len(prompt)
        ]
        for _ in self.run(rows):
            pass

    def close(self) -> None:
        """Free the model."""
        self._loaded = None
        gc.collect()  # modules refer to each other in cycles
        release_memory()


def _replace_layers(loaded: LoadedModel) -> None:
    """Put what is faster here in the place of a packed model's own layers."""
    if why := use_kernels(loaded, lambda: packed_scores(loaded)[0]):
        _log.info("without CPU kernels: %s", why)
        if can_prepack(loaded.model.dtype, loaded.device):
            prepack(loaded.model)
            replace_norms(loaded.model)
