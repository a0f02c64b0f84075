"""The records that cross Redis, and their bytes.

Decides what producers and workers tell each other; decides nothing about queues or keys. Records
are msgpack maps that open with the schema version `v`. A reader knows the current version and the
one before; for any other it raises `UnsupportedSchema`, it never guesses. Bytes may come from
anybody, so whatever is unpacked is limited in size, length and depth. May import pydantic, msgpack
and zstd.

A document travels as a *header* (who asked, and later what preprocessing has to say of it) beside
what changes on the way: the document's bytes, then the prepared tokens, then the result body. One
body may be delivered under many headers, which is how duplicates are answered once.
"""

import hashlib
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import msgpack
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from docmill.errors import DecodeError, UnsupportedSchema
from docmill.report import Report, Truncation
from docmill.rules import Policy

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SCHEMA_VERSION = 1

#: Larger bodies are compressed: below, the frame's overhead and the time eat what is saved.
COMPRESS_OVER = 4096
#: Bytes of a record, also once decompressed: several times the largest document that is allowed.
MAX_RECORD_BYTES = 128 * 1024 * 1024
#: Items of one list or map, and how deep they may lie in each other.
MAX_ITEMS = 65_536
MAX_DEPTH = 32
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"  # msgpack: the number 40, which opens no record

Truncate = Literal["refuse", "head", "tail", "middle", "semantic", "key_information", "split"]
Dedup = Literal["off", "exact", "text"]
Outcome = Literal["succeeded", "failed", "cancelled", "expired"]
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "cancelled", "expired")


class Record(BaseModel):
    """A wire record: a frozen model with bytes of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    schema_version: ClassVar[int] = SCHEMA_VERSION
    #: Older versions whose fields mean the same and are read as they are.
    read_versions: ClassVar[tuple[int, ...]] = ()

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
        if version != cls.schema_version and version not in cls.read_versions:
            known = " and ".join(map(str, (*cls.read_versions, cls.schema_version)))
            raise UnsupportedSchema(
                f"{cls.__name__} has schema version {version!r:.40}; this reader knows {known}"
            )
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "record"
            raise DecodeError(f"{cls.__name__}.{where}: {first['msg']}") from error


def unpack(data: bytes) -> dict[str, Any]:
    """Unpack a msgpack map; decompresses it first if need be.

    Extension types are refused, and what exceeds the limits above: a few bytes may claim to be
    many, or nest until a reader's stack is full.

    Raises:
        DecodeError: The bytes are not such a map.
    """
    if data.startswith(_ZSTD_MAGIC):
        data = _decompress(data)
    if len(data) > MAX_RECORD_BYTES:
        raise DecodeError(f"{len(data)} bytes are more than the {MAX_RECORD_BYTES} of a record")
    try:
        fields = msgpack.unpackb(
            data, ext_hook=_refuse_extension, max_array_len=MAX_ITEMS, max_map_len=MAX_ITEMS
        )
    except DecodeError:
        raise
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise DecodeError(f"not msgpack: {str(error) or type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise DecodeError(f"expected a map, got {type(fields).__name__}")
    _check_plain(fields)
    return fields


def _decompress(data: bytes) -> bytes:
    decompressor = zstd.ZstdDecompressor()
    try:
        record = decompressor.decompress(data, max_length=MAX_RECORD_BYTES)
    except zstd.ZstdError as error:
        raise DecodeError(f"not zstd: {error}") from error
    if not decompressor.eof:
        raise DecodeError(f"cut off, or more than {MAX_RECORD_BYTES} bytes once decompressed")
    return record


def _check_plain(value: dict[Any, Any] | list[Any], most: int = MAX_DEPTH) -> None:
    """Make sure that a value is plain, and lists and maps lie at most `most` deep in each other.

    Raises:
        DecodeError: It is not, or they do not.

    Cost: O(items).
    """
    if most == 0:
        raise DecodeError(f"lists and maps lie more than {MAX_DEPTH} deep in each other")
    for item in value.values() if isinstance(value, dict) else value:
        kind = type(item)
        if kind is dict or kind is list:
            _check_plain(item, most - 1)
        elif kind is msgpack.Timestamp:  # comes by no hook
            _refuse_extension(-1, b"")


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
    serves. `truncate` says what becomes of a document that has more tokens than fit, or than
    `max_document_tokens`; `combine` is what is asked about the answers to the parts of one that was
    split (empty: derived from `messages`). `rules` holds policies that differ from the service's.
    `dedup` says which documents may share an answer, `near_threshold` from which similarity on
    almost equal ones may as well (None: never).
    """

    messages: tuple[Message, ...]
    model: str | None = None
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=10.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    stop: tuple[str, ...] = ()
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    truncate: Truncate = "head"  # where a producer says nothing, as the first ones did
    max_document_tokens: int | None = Field(default=None, ge=1)
    combine: tuple[Message, ...] = ()
    rules: dict[str, Policy] = {}
    dedup: Dedup = "exact"
    near_threshold: float | None = Field(default=None, ge=0.5, le=1.0)

    def digest(self) -> str:
        """Return the spec's identity: 32 hex digits over its bytes."""
        return hashlib.blake2b(self.encode(), digest_size=16).hexdigest()


class Header(Record):
    """Who asked for what: made by the client, kept until the result.

    `submitted_at` and `deadline_at` are UNIX seconds. `encoding` names the document's bytes.
    `source` says where the document came from (file, line) and is handed back as it is. Nothing is
    shared between documents of different `tenant`. `report` is added by preprocessing, if there is
    anything to say.
    """

    request_id: str
    job_id: str
    custom_id: str
    spec: str
    tier: str = "batch"
    submitted_at: float
    deadline_at: float | None = None
    encoding: str = "utf-8"
    source: dict[str, JsonValue] | None = None
    tenant: str = ""
    report: Report | None = None


class Prepared(Record):
    """A document ready for an engine.

    `tokens` is the whole prompt, packed little-endian uint32. `prefix_len` counts the leading
    tokens that every document of this spec shares. `fingerprint` is empty when the answer must not
    be shared (sampling without a seed). `preprocess_s` is the time spent on this document, in
    seconds; `ready_at` the moment it was done, in UNIX seconds. `truncation` and `warnings` are of
    services that knew no reports: now the header's report says it.
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
    """What came of a document; several headers may share one body.

    Version 2: the bytes may be one zstd frame, see `pack_body`.
    """

    schema_version: ClassVar[int] = 2
    read_versions: ClassVar[tuple[int, ...]] = (1,)

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

    def encode(self) -> bytes:
        """Return the body's bytes, compressed where that pays. Cost: O(size)."""
        return pack_body(self.model_dump(exclude_defaults=True))


def pack_body(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a body with these fields, checked by nobody; see `COMPRESS_OVER`."""
    packed: bytes = msgpack.packb({"v": Body.schema_version, **fields})
    return zstd.compress(packed) if len(packed) > COMPRESS_OVER else packed
