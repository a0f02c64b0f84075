"""The records that cross Redis, and their bytes.

Decides what producers and workers tell each other; decides nothing about queues or keys. Records
are msgpack maps that open with the schema version `v`. A reader that meets another version raises
`UnsupportedSchema`; it never guesses. May import pydantic and msgpack.

A document travels as a *header* (who asked, unchanged from submit to result) beside what changes on
the way: the document's bytes, then the prepared tokens, then the result body. One body may be
delivered under many headers, which is how duplicates are answered once.
"""

import hashlib
from typing import Any, ClassVar, Literal, Self

import msgpack
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from docmill.errors import DecodeError, UnsupportedSchema

SCHEMA_VERSION = 1

Outcome = Literal["succeeded", "failed", "cancelled", "expired"]
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "cancelled", "expired")


class Record(BaseModel):
    """A wire record: a frozen model with bytes of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    schema_version: ClassVar[int] = SCHEMA_VERSION

    def encode(self) -> bytes:
        """Return the record's bytes. Cost: O(size)."""
        fields = self.model_dump(exclude_defaults=True)
        packed: bytes = msgpack.packb({"v": self.schema_version, **fields})
        return packed

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a record.

        Raises:
            DecodeError: The bytes are not such a record.
            UnsupportedSchema: The record is of another schema version.
        """
        fields = unpack(data)
        version = fields.pop("v", None)
        if version != cls.schema_version:
            raise UnsupportedSchema(
                f"{cls.__name__} has schema version {version!r}; this reader knows "
                f"{cls.schema_version}"
            )
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "record"
            raise DecodeError(f"{cls.__name__}.{where}: {first['msg']}") from error


def unpack(data: bytes) -> dict[str, Any]:
    """Unpack a msgpack map, refusing anything else, extension types included.

    Raises:
        DecodeError: The bytes are not a msgpack map.
    """
    try:
        fields = msgpack.unpackb(data, ext_hook=_refuse_extension)
    except DecodeError:
        raise
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise DecodeError(f"not msgpack: {error}") from error
    if not isinstance(fields, dict):
        raise DecodeError(f"expected a map, got {type(fields).__name__}")
    return fields


def _refuse_extension(code: int, data: bytes) -> Any:
    raise DecodeError(f"msgpack extension type {code} is not allowed")


class Message(BaseModel):
    """One chat turn whose content may hold the document.

    `content` is a sequence of literal strings, with None where the document goes.
    """

    model_config = ConfigDict(frozen=True)
    role: str
    content: tuple[str | None, ...]


class Spec(Record):
    """What is asked about each document: stored once per job under its digest.

    Exactly one place in all messages is the document's. `model` None means whatever the service
    serves. `truncate`: "head" keeps the document's beginning, "refuse" fails it.
    """

    messages: tuple[Message, ...]
    model: str | None = None
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=10.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    stop: tuple[str, ...] = ()
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    truncate: Literal["head", "refuse"] = "head"

    def digest(self) -> str:
        """Return the spec's identity: 32 hex digits over its bytes."""
        return hashlib.blake2b(self.encode(), digest_size=16).hexdigest()


class Header(Record):
    """Who asked for what: made by the client, unchanged until the result.

    `submitted_at` and `deadline_at` are UNIX seconds. `encoding` names the document's bytes.
    `source` says where the document came from (file, line) and is handed back as it is.
    """

    request_id: str
    job_id: str
    custom_id: str
    spec: str
    tier: str = "batch"
    submitted_at: float
    deadline_at: float | None = None
    encoding: str = "utf-8"
    source: dict[str, Any] | None = None


class Truncation(BaseModel):
    """What was cut from a document: token counts, and the rule that decided."""

    model_config = ConfigDict(frozen=True)
    policy: str
    original_tokens: int
    kept_tokens: int


class Prepared(Record):
    """A document ready for an engine.

    `tokens` is the whole prompt, packed little-endian uint32. `prefix_len` counts the leading
    tokens that every document of this spec shares. `fingerprint` is empty when the answer must not
    be shared (sampling without a seed). `preprocess_s` is the time spent on this document, in
    seconds; `ready_at` the moment it was done, in UNIX seconds.
    """

    tokens: bytes
    prefix_len: int = 0
    document_len: int = 0
    fingerprint: str = ""
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    truncation: Truncation | None = None
    ready_at: float = 0.0
    preprocess_s: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def prompt_len(self) -> int:
        """Prompt length in tokens."""
        return len(self.tokens) // 4


class Usage(BaseModel):
    """Token counts of one answer; `cached_tokens` of the prompt were not computed again."""

    model_config = ConfigDict(frozen=True)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Timings(BaseModel):
    """Where the time of one answer went, in seconds."""

    model_config = ConfigDict(frozen=True)
    queue_s: float = 0.0
    preprocess_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class Failure(BaseModel):
    """Why a document has no answer. `line` is 1-based, for input read from a file."""

    model_config = ConfigDict(frozen=True)
    code: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.code}: {self.message}"


class Body(Record):
    """What came of a document; several headers may share one body."""

    outcome: Outcome = "succeeded"
    text: str | None = None
    finish_reason: str | None = None
    usage: Usage = Usage()
    timings: Timings = Timings()
    truncation: Truncation | None = None
    warnings: tuple[str, ...] = ()
    model: str | None = None
    model_version: str | None = None
    config_version: str | None = None
    error: Failure | None = None
