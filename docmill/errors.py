"""Every error docmill raises, and what each means for a retry.

The whole tree:

    DocmillError
    ├─ ConfigError
    ├─ IntakeError
    ├─ ServiceError
    ├─ MessageError
    │  ├─ DecodeError
    │  ├─ UnsupportedSchema
    │  └─ MessageTooLarge
    ├─ InvalidDocument
    ├─ BrokerError
    │  ├─ BrokerUnavailable
    │  ├─ QueueFull
    │  └─ LeaseLost
    ├─ EngineError
    │  ├─ ModelLoadError
    │  ├─ DeviceOutOfMemory
    │  ├─ EngineFault
    │  ├─ GenerationTimeout
    │  └─ NonFiniteLogits
    ├─ CacheError
    │  ├─ NoFreeBlocks
    │  ├─ CorruptBlock
    │  └─ TierUnavailable
    └─ JobError
       ├─ JobNotFound
       ├─ JobRejected
       ├─ JobFailed
       ├─ JobDeadLettered
       ├─ ResultTimeout
       ├─ ResultExpired
       └─ JobCancelled

`code` is stable, lower case, and goes on the wire and into metrics; `from_code` turns it back into
a class. `retryable` is the only thing a retry policy reads. May import nothing but the standard
library.
"""

from enum import StrEnum
from typing import Any, ClassVar


class Reason(StrEnum):
    """Why a document was refused; closed, because clients branch on it."""

    EMPTY_DOCUMENT = "empty_document"
    ENCODING = "encoding"
    NOT_TEXT = "not_text"
    TOO_LARGE = "too_large"
    CONTEXT_TOO_SMALL = "context_too_small"
    TOO_LONG = "too_long"
    UNKNOWN_MODEL = "unknown_model"
    BAD_REQUEST = "bad_request"
    BAD_LINE = "bad_line"
    UNREADABLE = "unreadable"
    DUPLICATE_CUSTOM_ID = "duplicate_custom_id"
    REJECTED_BY_RULE = "rejected_by_rule"
    NO_TEXT = "no_text"
    EXTRACTION = "extraction"


class DocmillError(Exception):
    """Something docmill was asked for could not be done."""

    code: ClassVar[str] = "docmill_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", **context: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.context = context
        super().__init__(self.message)


class ConfigError(DocmillError):
    """The configuration cannot be used; every problem is listed."""

    code = "config_error"


class IntakeError(DocmillError):
    """The input cannot be read at all, so nothing was submitted."""

    code = "intake_error"


class ServiceError(DocmillError):
    """The service on this machine cannot start, or has ended."""

    code = "service_error"


class MessageError(DocmillError):
    """A record on the wire cannot be used."""

    code = "message_error"


class DecodeError(MessageError):
    """The bytes are not a docmill record."""

    code = "decode_error"


class UnsupportedSchema(MessageError):
    """The record's schema version is not one this reader knows."""

    code = "unsupported_schema"


class MessageTooLarge(MessageError):
    """The record is larger than one entry may be."""

    code = "message_too_large"


class InvalidDocument(DocmillError):
    """The document cannot be processed as it is."""

    code = "invalid_document"

    def __init__(self, reason: Reason, message: str, **context: Any) -> None:
        super().__init__(message, **context)
        self.reason = reason


class BrokerError(DocmillError):
    """Redis did not do what was asked."""

    code = "broker_error"
    retryable = True


class BrokerUnavailable(BrokerError):
    """Redis cannot be reached."""

    code = "broker_unavailable"


class QueueFull(BrokerError):
    """The backlog limit is reached; wait until documents have been answered."""

    code = "queue_full"


class LeaseLost(BrokerError):
    """Somebody else owns the entry now; the answer was dropped."""

    code = "lease_lost"


class EngineError(DocmillError):
    """The engine could not answer."""

    code = "engine_error"


class ModelLoadError(EngineError):
    """The model cannot be loaded; the process exits."""

    code = "model_load_error"


class DeviceOutOfMemory(EngineError):
    """The device has too little memory for this document."""

    code = "device_out_of_memory"
    retryable = True


class EngineFault(EngineError):
    """The model failed on this document for a reason that the engine does not know."""

    code = "engine_fault"
    retryable = True


class GenerationTimeout(EngineError):
    """The answer took longer than allowed."""

    code = "generation_timeout"
    retryable = True


class NonFiniteLogits(EngineError):
    """The model produced NaN or infinite scores for this document."""

    code = "non_finite_logits"


class CacheError(DocmillError):
    """The KV cache could not serve or keep something."""

    code = "cache_error"
    retryable = True


class NoFreeBlocks(CacheError):
    """No KV block is free; preempt and retry inside the engine."""

    code = "no_free_blocks"


class CorruptBlock(CacheError):
    """A stored block fails its checksum; treat it as a miss."""

    code = "corrupt_block"


class TierUnavailable(CacheError):
    """A cache tier cannot be used and is switched off."""

    code = "tier_unavailable"


class JobError(DocmillError):
    """A job did not end as hoped; only the client raises this."""

    code = "job_error"


class JobNotFound(JobError):
    """No such job: it was never submitted here, or its results have expired."""

    code = "job_not_found"


class JobRejected(JobError):
    """The job's parameters cannot be used."""

    code = "job_rejected"


class JobFailed(JobError):
    """The document failed."""

    code = "job_failed"


class JobDeadLettered(JobError):
    """The document was given up after too many deliveries."""

    code = "delivery_limit"


class ResultTimeout(JobError):
    """The job is still running; asking again is safe."""

    code = "result_timeout"


class ResultExpired(JobError):
    """The results were kept for their lifetime and are gone."""

    code = "result_expired"


class JobCancelled(JobError):
    """The job was cancelled and takes no more documents."""

    code = "job_cancelled"


def _tree(root: type[DocmillError]) -> dict[str, type[DocmillError]]:
    classes = {root.code: root}
    for child in root.__subclasses__():
        classes.update(_tree(child))
    return classes


def from_code(code: str) -> type[DocmillError]:
    """Return the class whose `code` this is; `JobFailed` for one unknown to this version."""
    return _tree(DocmillError).get(code, JobFailed)
