"""Verdicts on documents that came by lately, so that a copy is not prepared again.

Decides which of them to keep: the ones used last, within a number of bytes. What a verdict is, and
what its key covers, the caller decides. Pure bookkeeping without a clock; one thread at a time.
May import the standard library.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

#: What an entry takes beside its value: key, tuple and place in the order, measured.
_ENTRY_BYTES = 250


class SeenDocuments(Generic[T]):
    """Keeps what was used last, up to `max_bytes`; 0 keeps nothing.

    `num_lookups` and `num_hits` count from the start.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._entries: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self.num_lookups = 0
        self.num_hits = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> T | None:
        """Return what was kept under the key, which now counts as used last."""
        self.num_lookups += 1
        entry = self._entries.get(key)
        if entry is None:
            return None
        self.num_hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: bytes, value: T, size_bytes: int) -> None:
        """Keep the value in place of whatever had this key; drop what was used longest ago.

        A value that alone exceeds the bound is not kept, and costs no other its place.
        """
        self._drop(key)
        size_bytes += _ENTRY_BYTES
        if size_bytes > self._max_bytes:
            return
        self._entries[key] = (value, size_bytes)
        self._held_bytes += size_bytes
        while self._held_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes) -> None:
        _, size_bytes = self._entries.pop(key, (None, 0))
        self._held_bytes -= size_bytes
