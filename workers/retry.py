"""What happens to a document that failed: another try, later, or the end.

Decides by nothing but whether the error is `retryable` and how often the document was delivered;
pure, the randomness is passed in. An exception that is not ours may be anything, and counts as
retryable: what fails every time ends at the delivery limit. May import docmill.errors.
"""

import hashlib
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from docmill.errors import DocmillError, JobDeadLettered

#: Before the second try; twice as long before each further one.
BASE_S = 1.0
MAX_S = 60.0
_MAX_MESSAGE_LEN = 1000


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong with a document: as results, dead letters and logs say it.

    `trace` is the digest that the log shows beside the traceback.
    """

    code: str
    message: str
    is_retryable: bool
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Again:
    """Deliver the document once more, `delay_s` from now."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the document with this code and message, and keep it among the dead letters."""

    code: str
    message: str


def trouble(error: Exception, strangers_code: str = DocmillError.code) -> Trouble:
    """Return what an exception means for the document at hand.

    Args:
        error: What was raised.
        strangers_code: The code to tell when it is not one of ours.
    """
    trace = trace_digest(error)
    if isinstance(error, DocmillError):
        return Trouble(error.code, _told(error.message), error.retryable, trace)
    message = _told(f"{type(error).__name__}: {error}")
    return Trouble(strangers_code, message, is_retryable=True, trace=trace)


def _told(message: str) -> str:
    """Return a message as Redis takes it: of some length, and without lone surrogates."""
    return message[:_MAX_MESSAGE_LEN].encode("utf-8", "replace").decode()


def decide(
    trouble: Trouble, delivery_count: int, max_deliveries: int, jitter: float
) -> Again | GiveUp:
    """Decide what happens to a document after a failure.

    Args:
        trouble: What went wrong.
        delivery_count: Deliveries so far, this one included.
        max_deliveries: How many there may be.
        jitter: A random number from 0 to 1; spreads documents that failed together over the second
            half of the delay.
    """
    if not trouble.is_retryable:
        return GiveUp(trouble.code, trouble.message)
    if delivery_count >= max_deliveries:
        last = f"{trouble.code}: {trouble.message}"
        return GiveUp(
            JobDeadLettered.code, f"given up after {delivery_count} deliveries; at last {last}"
        )
    # the exponent is bounded because a float is
    ceiling_s = min(MAX_S, BASE_S * 2.0 ** min(delivery_count - 1, 16))
    return Again(ceiling_s * (0.5 + 0.5 * jitter))


def trace_digest(error: BaseException) -> str:
    """Return 12 hex digits over an exception's frames and its causes'; '' where it has none.

    The same fault has the same digest in every process of a version, whatever its message, so that
    a dead letter leads to the log's traceback, and equal faults can be counted.
    """
    frames = "\n".join(_frames(error))
    if not frames:
        return ""
    return hashlib.blake2b(frames.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _frames(error: BaseException) -> Iterator[str]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for frame, line in traceback.walk_tb(cause.__traceback__):
            code = frame.f_code
            yield f"{os.path.basename(code.co_filename)}:{code.co_qualname}:{line}"
        cause = cause.__cause__ or cause.__context__
