"""Which rows begin alike, so that what they share is computed once.

Decides in which order rows are computed and from whom a row takes its beginning: token ids are
compared, hints are not. Pure: knows prompts, not memory. May import numpy.
"""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Fewer tokens than this are computed rather than copied: one copy per layer costs as much.
MIN_SHARED = 16

Holder = TypeVar("Holder", bound=Hashable)
Prompt = NDArray[np.uint32]


def num_shared(prompt: Prompt, other: Prompt) -> int:
    """Return how many tokens two prompts have in common at their beginning."""
    shorter = min(len(prompt), len(other))
    differs = prompt[:shorter] != other[:shorter]
    return int(differs.argmax()) if differs.any() else shorter


def in_groups(prompts: Sequence[Prompt]) -> list[int]:
    """Return the indices of prompts so that those which begin alike follow each other.

    Groups come in the order of their first members, so that what is oldest is not put off by more
    than its neighbours' groups.

    Cost: O(n log n) comparisons.
    """
    keys = [_key(prompt) for prompt in prompts]
    groups: list[list[int]] = []
    for index in sorted(range(len(prompts)), key=keys.__getitem__):
        if groups and num_shared(prompts[groups[-1][-1]], prompts[index]) >= MIN_SHARED:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [index for group in sorted(groups, key=min) for index in group]


class Beginnings(Generic[Holder]):
    """The prompts that can be copied from, each with who holds it."""

    def __init__(self) -> None:
        # in lexicographic order, in which the best partner of a prompt is always next to it
        self._keys: list[bytes] = []
        self._entries: list[tuple[Prompt, Holder]] = []

    def add(self, prompt: Prompt, holder: Holder) -> None:
        """Note that `holder` holds a prompt. Cost: O(log n) comparisons."""
        key = _key(prompt)
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._entries.insert(at, (prompt, holder))

    def discard(self, prompt: Prompt, holder: Holder) -> None:
        """Note that `holder` holds its prompt no longer, if it did."""
        key = _key(prompt)
        at = bisect_left(self._keys, key)
        while at < len(self._keys) and self._keys[at] == key:
            if self._entries[at][1] == holder:
                del self._keys[at], self._entries[at]
                return
            at += 1

    def longest(self, prompt: Prompt) -> tuple[Holder, int] | None:
        """Return who shares most with a prompt, and how many tokens, if they are worth copying.

        At least the prompt's last token is left to be computed, since its scores are needed.
        """
        at = bisect_left(self._keys, _key(prompt))
        near = self._entries[max(0, at - 1) : at + 1]
        found = [(num_shared(prompt, other), holder) for other, holder in near]
        num_tokens, holder = max(found, key=lambda each: each[0], default=(0, None))
        num_tokens = min(num_tokens, len(prompt) - 1)
        return (holder, num_tokens) if holder is not None and num_tokens >= MIN_SHARED else None


def _key(prompt: Prompt) -> bytes:
    """Return bytes that are in the order of the token ids they stand for."""
    return prompt.astype(">u4").tobytes()
