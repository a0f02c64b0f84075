"""Importing transformers' models without what no model needs to answer.

Decides what is left out: torch's compiler, torch's distributed tensors and SciPy. transformers
imports them for decorators that only the compiler reads, for weights spread over machines and for
the losses of training, at half of the time that a start takes. Whoever asks for torch's compiler
later gets the real one. May import torch and transformers.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers

_COMPILER = "torch._dynamo"
_INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"
#: What transformers asks itself before it imports the other two parts.
_QUESTIONS = ("is_scipy_available", "is_torch_distributed_available")
#: What every causal language model of transformers imports.
_COMMON = (
    "transformers.modeling_utils",
    "transformers.masking_utils",
    "transformers.generation.utils",
    "transformers.models.auto.modeling_auto",
)


def import_models() -> None:
    """Import what transformers' models have in common; no effect where that has been imported.

    A release of transformers that wants more of what is left out gets all of it, and the start is
    slower again.

    Cost: 0.2 s of processor time after torch and `transformers`, where the ordinary import takes
    2 to 2.5 s.
    """
    try:
        with without_compiler(), _rest_left_out():
            _import_all(_COMMON)
    except (ImportError, AttributeError, TypeError):
        _import_all(_COMMON)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let what is done in the block do without torch's compiler, unless it has been imported.

    Whatever asks for more than a few of its decorators gets the real one. Torch itself imports it,
    for 0.5 s, to draw first values for weights that have no memory yet,
    while a model is being made.
    """
    if _COMPILER in sys.modules:
        yield
        return
    compiler, indexing = _stand_ins()
    with (
        _replaced(sys.modules, {_COMPILER: compiler, _INDEXING: indexing}),
        _replaced(vars(torch), {"_dynamo": compiler}),
    ):
        yield


def _import_all(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


@contextmanager
def _rest_left_out() -> Iterator[None]:
    """Let transformers find no SciPy and no distributed torch, and its models at once."""
    from transformers import utils
    from transformers.utils import import_utils

    answers = dict.fromkeys(_QUESTIONS, _no)
    found = _found_models(import_utils.define_import_structure)
    with (
        _replaced(vars(utils), answers),
        _replaced(vars(import_utils), {**answers, "define_import_structure": found}),
    ):
        yield


@contextmanager
def _replaced(names: Any, values: Mapping[str, Any]) -> Iterator[None]:
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        ours = [name for name in values if names.get(name) is values[name]]
        for name in ours:
            del names[name]
        names.update({name: before[name] for name in ours if name in before})


def _no() -> bool:
    return False


def _found_models(look: Callable[..., Any]) -> Callable[..., Any]:
    """Return `look` without its second look through the 1,500 files of all models.

    What `transformers` found for itself is still known; `transformers.models` asks for the same
    without the prefix.
    """
    models = Path(transformers.__file__).parent / "models"
    prefix = "models."

    def found(module_path: str, *args: object, **kwargs: object) -> Any:
        if args or kwargs or Path(module_path).parent != models:
            return look(module_path, *args, **kwargs)
        return {
            needed: {
                name.removeprefix(prefix): objects
                for name, objects in modules.items()
                if name.startswith(prefix)
            }
            for needed, modules in look(models, prefix="models").items()
        }

    return found


def _stand_ins() -> tuple[ModuleType, ModuleType]:
    """Return what transformers uses of torch's compiler while it is imported."""
    compiler, indexing = ModuleType(_COMPILER), ModuleType(_INDEXING)
    for decorator in ("disable", "allow_in_graph", "assume_constant_result"):
        setattr(compiler, decorator, _unmarked)
    vars(indexing)["TransformGetItemToIndex"] = _index_by_tensors
    vars(compiler)["__getattr__"] = _from_compiler
    return compiler, indexing


def _from_compiler(name: str) -> Any:
    """Give way to the real compiler: something is asked for that it alone has.

    Its path is asked for by whoever imports one of its parts.
    """
    if name.startswith("__") and name != "__path__":
        raise AttributeError(name)  # asked of every module by whoever looks through all of them
    for stand_in in (_COMPILER, _INDEXING):
        del sys.modules[stand_in]
    del vars(torch)["_dynamo"]
    return getattr(importlib.import_module(_COMPILER), name)


def _unmarked(function: Callable[..., Any] | None = None, *_: object, **__: object) -> Any:
    """Return a function as it is: the marks are for the compiler."""
    return _unmarked if function is None else function


def _index_by_tensors() -> Any:
    """Return torch's own way of indexing for masks that are vectorised; imported when used."""
    module = importlib.import_module(_INDEXING)
    return module.TransformGetItemToIndex()
