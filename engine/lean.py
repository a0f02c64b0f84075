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

    Cost: 0.5 s of processor time after torch and `transformers`, where the ordinary import takes
    2 to 2.5 s.
    """
    if _COMPILER not in sys.modules:
        try:
            with _left_out():
                _import_all(_COMMON)
        except (ImportError, AttributeError, TypeError):
            pass
        else:
            return
    _import_all(_COMMON)


def _import_all(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


@contextmanager
def _left_out() -> Iterator[None]:
    """Let transformers find stand-ins for the parts until the block ends."""
    from transformers import utils
    from transformers.utils import import_utils

    compiler, indexing = _stand_ins()
    answers = dict.fromkeys(_QUESTIONS, _no)
    found = _found_models(import_utils.define_import_structure)
    with (
        _replaced(vars(utils), answers),
        _replaced(vars(import_utils), {**answers, "define_import_structure": found}),
        _replaced(sys.modules, {_COMPILER: compiler, _INDEXING: indexing}),
        _replaced(vars(torch), {"_dynamo": compiler}),
    ):
        yield


@contextmanager
def _replaced(names: Any, values: Mapping[str, Any]) -> Iterator[None]:
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        for name in values:
            del names[name]
        names.update(before)


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
    compiler.__path__ = []  # else nothing below it can be imported
    for decorator in ("disable", "allow_in_graph", "assume_constant_result"):
        setattr(compiler, decorator, _unmarked)
    vars(indexing)["TransformGetItemToIndex"] = _index_by_tensors
    return compiler, indexing


def _unmarked(function: Callable[..., Any] | None = None, *_: object, **__: object) -> Any:
    """Return a function as it is: the marks are for the compiler."""
    return _unmarked if function is None else function


def _index_by_tensors() -> Any:
    """Return torch's own way of indexing for masks that are vectorised; imported when used."""
    module = importlib.import_module(_INDEXING)
    return module.TransformGetItemToIndex()
