"""An engine without a model, for tests and for measuring everything around one.

Decides nothing about language: the answer is a pure function of the prompt ids, a few words long.
Delays and faults are injected by the caller. May import docmill.errors, numpy and engine.base.
"""

import hashlib
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from docmill.errors import EngineError
from engine.base import Capacity, Event, FinishReason, Refill, Row, RowDone, RowFailed, Step

T = TypeVar("T", Row, Event)

#: Decides whether a row fails, and with which error.
Fault = Callable[[Row], EngineError | None]

_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron"),
    *("inlet", "juniper", "kestrel", "larch", "meadow", "nettle", "otter", "poplar"),
)


class FakeEngine:
    """Answers every row with words derived from its prompt.

    Args:
        model_name: The name it is served under.
        capacity: What it says fits at once; more rows than `max_rows` are answered in waves.
        token_delay_s: Time one decode step takes, whatever the number of rows.
        batch_delay_s: Time each wave takes before its first token.
        fault: Called with each row; an error it returns becomes that row's event.
        sleep: Waits; replaced in tests of time.
    """

    def __init__(
        self,
        model_name: str = "fake",
        *,
        capacity: Capacity | None = None,
        token_delay_s: float = 0.0,
        batch_delay_s: float = 0.0,
        fault: Fault | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model_name = model_name
        self._capacity = capacity or Capacity(32_768, 256, 1_048_576)
        self._token_delay_s = token_delay_s
        self._batch_delay_s = batch_delay_s
        self._fault = fault
        self._sleep = sleep
        self._closed = False

    @property
    def model_name(self) -> str:
        """The name it is served under."""
        return self._model_name

    def capacity(self) -> Capacity:
        """Return what it says fits at once."""
        return self._capacity

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer rows wave by wave; see `engine.base.Engine.run`.

        A pass is a wave, and with `token_delay_s` also each token of it.

        Raises:
            EngineError: The engine is closed.
        """
        if self._closed:
            raise EngineError("the engine is closed; load it again")
        return self._run(deque(rows), refill, step or (lambda: ()))

    def _run(self, waiting: deque[Row], refill: Refill | None, step: Step) -> Iterator[Event]:
        max_rows = self._capacity.max_rows
        while True:
            if refill is not None and len(waiting) < max_rows:
                waiting.extend(refill(max_rows - len(waiting)))
            if not waiting:
                return
            _let_leave(waiting, step())
            wave = [waiting.popleft() for _ in range(min(max_rows, len(waiting)))]
            if self._batch_delay_s and wave:
                self._sleep(self._batch_delay_s)
            if self._token_delay_s:
                yield from self._speak(wave, waiting, step)
            else:
                yield from map(self._answer, wave)

    def _speak(self, wave: list[Row], waiting: deque[Row], step: Step) -> Iterator[Event]:
        """Answer rows token by token, so that shorter answers end earlier."""
        events = deque(self._answer(row) for row in wave)
        num_spoken = 0
        while events:
            yield from (event for event in events if _num_tokens(event) <= num_spoken)
            events = deque(event for event in events if _num_tokens(event) > num_spoken)
            leaving = step() if events else ()
            _let_leave(waiting, leaving)
            _let_leave(events, leaving)
            if events:
                self._sleep(self._token_delay_s)
                num_spoken += 1

    def _answer(self, row: Row) -> Event:
        error = self._refusal(row) or (self._fault(row) if self._fault else None)
        return RowFailed(row.row_id, error) if error else answer(row)

    def _refusal(self, row: Row) -> EngineError | None:
        needed = len(row.prompt) + row.sampling.max_tokens
        if len(row.prompt) and needed <= self._capacity.context_len:
            return None
        return EngineError(
            f"prompt of {len(row.prompt)} tokens plus {row.sampling.max_tokens} output tokens: "
            f"the prompt must not be empty and both must fit {self._capacity.context_len}"
        )

    def warm(self, prefixes: Sequence[NDArray[np.uint32]]) -> None:
        """Do nothing: there is nothing to warm."""

    def close(self) -> None:
        """Refuse further work."""
        self._closed = True


def answer(row: Row) -> RowDone:
    """Return the fake answer to a row: one token per word, and one that ends the text."""
    # a checksum first: hashing the whole prompt would be a tenth of what a document costs in all
    checksum = zlib.crc32(row.prompt.tobytes())
    digest = hashlib.blake2b(checksum.to_bytes(4, "little"), digest_size=16).digest()
    num_words = 4 + digest[0] % 8
    words = [_WORDS[byte % len(_WORDS)] for byte in digest[1 : 1 + num_words]]
    text = " ".join(words[: row.sampling.max_tokens])
    ends = num_words < row.sampling.max_tokens
    for stop in row.sampling.stop:
        if stop in text:
            text, ends = text[: text.index(stop)], True
    token_ids = tuple(digest[1 : 1 + min(num_words, row.sampling.max_tokens)])
    finish_reason: FinishReason = "stop" if ends else "length"
    return RowDone(row.row_id, text, token_ids, finish_reason, max(1, len(token_ids)))


def _let_leave(rows: deque[T], leaving: Collection[str]) -> None:
    if leaving:
        kept = [row for row in rows if row.row_id not in leaving]
        rows.clear()
        rows.extend(kept)


def _num_tokens(event: Event) -> int:
    return event.num_tokens if isinstance(event, RowDone) else 0
