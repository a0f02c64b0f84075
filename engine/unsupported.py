"""What a path says that cannot serve a model, and what layers may ask of an attention function.

Decides which of a layer's demands can be left unheard. May import the standard library.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

_Pass = TypeVar("_Pass")

#: What models hand to attention functions that needs no attention here.
_HARMLESS = frozenset(
    {"cache", "use_cache", "position_ids", "position_embeddings", "dropout", "output_attentions"}
)


class Unsupported(Exception):
    """A path cannot serve this model; the message says what it asks for."""


def pass_of(told: _Pass | None, mask: object, others: Mapping[str, Any]) -> _Pass:
    """Return the pass that a layer tells its attention function.

    Args:
        told: What the layer handed on as the pass.
        mask: Its mask, which every path makes itself.
        others: Further arguments, which nothing here knows.

    Raises:
        Unsupported: It handed on no pass, or asks for something that is not built.
    """
    if told is None:
        raise Unsupported("its layers do not pass keyword arguments on to attention")
    asked = [name for name, value in others.items() if not _is_harmless(name, value)]
    if mask is not None or asked:
        raise Unsupported(f"attention with {', '.join(asked) or 'a mask of its own'}")
    return told


def _is_harmless(name: str, value: Any) -> bool:
    if name == "is_causal":
        return value is not False
    return value is None or value is False or name in _HARMLESS
