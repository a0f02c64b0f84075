"""One row while it is being answered: what it has said, and whether that was the end.

Decides when an answer ends (end-of-text token, stop string, limit) and what its event says. May
import docmill.errors, engine.base, engine.sampling and engine.text.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence

from docmill.errors import EngineError, NonFiniteLogits
from engine.base import Event, FinishReason, Row, RowDone, RowFailed
from engine.sampling import Chooser
from engine.text import Detokenizer, StopScanner, cut_at

Clock = Callable[[], float]


class Answer:
    """The answer to one row as it grows.

    Args:
        row: What is answered.
        detokenizer: Turns ids into text.
        eos_ids: Tokens that end an answer.
        clock: Tells monotonic seconds.
    """

    def __init__(
        self,
        row: Row,
        detokenizer: Detokenizer,
        eos_ids: Collection[int],
        clock: Clock = time.perf_counter,
    ) -> None:
        self.row = row
        self.chooser = Chooser(row.sampling)
        self.token_ids: list[int] = []
        self.num_cached = 0
        stop = row.sampling.stop
        self._scanner = StopScanner(detokenizer, stop) if stop else None
        self._detokenizer = detokenizer
        self._eos_ids = eos_ids
        self._clock = clock
        self._started_at = self._first_at = 0.0

    @property
    def num_needed(self) -> int:
        """Tokens the row needs room for: the last one generated is never computed on."""
        return len(self.row.prompt) + self.row.sampling.max_tokens - 1

    def afresh(self) -> "Answer":
        """Return the answer to the same row as it was before its first token."""
        return Answer(self.row, self._detokenizer, self._eos_ids, self._clock)

    def start(self) -> None:
        """Note that the row's prefill begins, unless it has begun."""
        self._started_at = self._started_at or self._clock()

    def push(self, token: int | None) -> Event | None:
        """Take the next token, None if there was none to be had; return the event if this ends it.

        A row fails alone when its scores are not finite.
        """
        if token is None:
            step = len(self.token_ids)
            message = f"the model's scores for output token {step + 1} are not finite"
            return RowFailed(self.row.row_id, NonFiniteLogits(message, step=step))
        self.token_ids.append(token)
        self._first_at = self._first_at or self._clock()
        if token in self._eos_ids:
            return self._done("stop", self.token_ids[:-1])
        if self._scanner is not None and self._scanner.push(token):
            return self._done("stop", self.token_ids)
        if len(self.token_ids) >= self.row.sampling.max_tokens:
            return self._done("length", self.token_ids)
        return None

    def _done(self, reason: FinishReason, spoken: Sequence[int]) -> RowDone:
        now = self._clock()
        text = self._detokenizer.final(spoken)
        cut = cut_at(text, self.row.sampling.stop)
        return RowDone(
            row_id=self.row.row_id,
            text=text if cut is None else text[:cut],
            token_ids=tuple(self.token_ids),
            finish_reason=reason if cut is None else "stop",
            num_tokens=len(self.token_ids),
            num_cached_tokens=self.num_cached,
            prefill_s=self._first_at - self._started_at,
            decode_s=now - self._first_at,
        )


def refusal(row: Row, context_len: int, vocab_size: int) -> EngineError | None:
    """Return why a row cannot be run at all, None if it can."""
    prompt_len, max_tokens = len(row.prompt), row.sampling.max_tokens
    if not prompt_len or max_tokens < 1 or prompt_len + max_tokens > context_len:
        return EngineError(
            f"prompt of {prompt_len} tokens plus {max_tokens} output tokens: both must be at "
            f"least 1 and together fit the model's {context_len}"
        )
    if int(row.prompt.max()) >= vocab_size:
        return EngineError(
            f"token id {int(row.prompt.max())} is not in the model's vocabulary of {vocab_size}: "
            "the prompt was made with another model's tokenizer"
        )
    return None


def without_refused(
    rows: Sequence[Row], context_len: int, vocab_size: int, accepted: Callable[[Row], None]
) -> Iterator[Event]:
    """Hand rows that can run to `accepted`; yield an event for each that cannot."""
    for row in rows:
        error = refusal(row, context_len, vocab_size)
        if error is None:
            accepted(row)
        else:
            yield RowFailed(row.row_id, error)
