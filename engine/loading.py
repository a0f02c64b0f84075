"""From a directory to a model that is known to be computed right, or one line saying why not.

Decides how a model is read; `engine.servable` says which cannot be served. Reads local files only.
May import torch, transformers, docmill.errors and the modules of this package below it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import Cache
from transformers.utils import logging as transformers_logging

from docmill.errors import EngineError, EngineFault, ModelLoadError
from engine import servable
from engine.device import is_out_of_memory
from engine.lean import without_compiler
from engine.slab import Slab
from engine.steps import PackedStep, SlabCache, Way
from engine.text import Detokenizer
from engine.unsupported import Unsupported

_LOCAL = {"local_files_only": True, "trust_remote_code": False}

#: Where transformers advises to install kernels, for each function that has one.
_KERNEL_LOG = logging.getLogger("transformers.integrations.hub_kernels")


@dataclass(eq=False, slots=True)
class LoadedModel:
    """A model on its device, and what answering with it needs.

    `new_slab` makes what its attention reads keys and values from; `way` is how they are attended.
    """

    model: Any
    detokenizer: Detokenizer
    device: torch.device
    context_len: int
    vocab_size: int
    eos_ids: frozenset[int]
    new_slab: Callable[[], Slab] = Slab
    way: Way = "runs"

    def forward(self, ids: Tensor, positions: Tensor, keep: Tensor, step: PackedStep) -> Tensor:
        """Compute packed tokens; return the scores after each token in `keep`.

        Shapes:
            ids, positions: [T].   keep: [B], the newest of some runs, in order; may be empty.
            returns: [B, V].

        Raises:
            EngineFault: The model failed; running out of memory passes as torch raised it.
        """
        step.way, step.keep = self.way, keep
        return self.compute(ids, positions, keep, SlabCache(step), packed=step)

    def compute(
        self, ids: Tensor, positions: Tensor, keep: Tensor, cache: Cache, **told: object
    ) -> Tensor:
        """Compute tokens laid end to end; `told` reaches the attention function. See `forward`."""
        # an empty selection is not worth asking every model for: compute one, drop it
        wanted = keep if len(keep) else torch.zeros(1, dtype=torch.int64, device=self.device)
        with model_failures(), torch.inference_mode():
            output = self.model(
                input_ids=ids[None],
                position_ids=positions[None],
                cache=cache,
                use_cache=True,
                logits_to_keep=wanted,
                **told,
            )
        scores: Tensor = output.logits[0]
        return scores[: len(keep)]


@contextmanager
def model_failures() -> Iterator[None]:
    """Let a model's failures be our error; running out of memory passes as torch raised it.

    Raises:
        EngineFault: The model failed in the block.
    """
    try:
        yield
    except (EngineError, Unsupported):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise EngineFault(f"the model failed: {type(error).__name__}: {error}") from error


def load(path: Path, device: torch.device, dtype: torch.dtype, max_len: int | None) -> LoadedModel:
    """Load a model directory.

    Raises:
        ModelLoadError: It cannot be served; the message names the thing and the remedy.
    """
    config = _read_config(path)
    servable.check_config(path, config)
    servable.check_weight_files(path)
    tokenizer = _read_tokenizer(path)
    model = _read_model(path, dtype, device).eval().requires_grad_(False)
    vocab_size = model.get_input_embeddings().num_embeddings
    servable.check_vocabulary(path, vocab_size)
    servable.check_generation(path, model.generation_config)
    text_config = config.get_text_config(decoder=True)
    own_len = getattr(text_config, "max_position_embeddings", None)
    context_len = min(length for length in (own_len, max_len, 2**31) if length)
    return LoadedModel(
        model=model,
        detokenizer=Detokenizer(tokenizer),
        device=device,
        context_len=context_len,
        vocab_size=vocab_size,
        eos_ids=_ids(getattr(model.generation_config, "eos_token_id", None))
        | _ids(getattr(text_config, "eos_token_id", None)),
    )


def _read_config(path: Path) -> Any:
    servable.check_directory(path)
    try:
        return AutoConfig.from_pretrained(path, **_LOCAL)
    except Exception as error:
        if servable.has_own_code(path):
            raise ModelLoadError(
                f"{path}: this model needs code of its own (auto_map), which is not run; choose "
                "one that transformers has built in"
            ) from error
        raise ModelLoadError(f"{path}/config.json: {_line(error)}") from error


def _read_tokenizer(path: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(path, **_LOCAL)
    except Exception as error:
        raise ModelLoadError(
            f"{path}: the tokenizer cannot be read; is tokenizer.json there? {_line(error)}"
        ) from error


def _read_model(path: Path, dtype: torch.dtype, device: torch.device) -> Any:
    transformers_logging.disable_progress_bar()
    if device.type == "cpu":
        _KERNEL_LOG.addFilter(_is_of_use_on_cpus)
    try:
        with without_compiler():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                path, dtype=dtype, use_safetensors=True, output_loading_info=True, **_LOCAL
            )
        model, info = loaded[0].to(device), loaded[1]
    except Exception as error:
        if is_out_of_memory(error):
            raise ModelLoadError(
                f"{path}: the weights do not fit the {device.type}'s memory; use a smaller model"
            ) from error
        raise ModelLoadError(f"{path}: the weights cannot be read: {_line(error)}") from error
    servable.check_loaded(path, info, model)
    return model


def _is_of_use_on_cpus(record: logging.LogRecord) -> bool:
    """Say whether a line is more than advice to install what computes on GPUs alone."""
    return "is falling back to its reference PyTorch implementation" not in record.getMessage()


def _line(error: Exception) -> str:
    """Return the first line of an error, whose library may have written a page."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def _ids(value: int | list[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)
