"""From a document to the script call that carries it.

Decides what a submitted document looks like on the wire and which documents become error records
instead; sends nothing. May import docmill.wire and docmill.request.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgpack

from docmill.errors import JobRejected, Reason
from docmill.intake.base import Document, Item, Refusal
from docmill.request import SpecBook
from docmill.scripts import ScriptName
from docmill.wire import SCHEMA_VERSION, Body, Failure


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all documents of one submission."""

    job_id: str
    tier: str
    deadline_at: float | None
    result_ttl_s: int
    name: str | None
    waits_when_full: bool
    max_document_bytes: int
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One document or error record ready to be sent: the script, and its arguments after the job.

    `earlier` says where its custom id stood before in this submission, if it did.
    """

    script: ScriptName
    args: tuple[Any, ...]
    num_bytes: int
    item: Item
    position: str
    earlier: str | None = None


class Envelopes:
    """Makes the envelopes of one submission."""

    def __init__(self, terms: Terms, specs: SpecBook) -> None:
        self._terms = terms
        self._specs = specs
        # 64 random bits for the submission and a counter: unique, and cheaper than a uuid each
        self._nonce = secrets.token_hex(8)
        self._num_made = 0
        self._digests_sent: set[str] = set()

    def make(self, item: Item, position: str, earlier: str | None = None) -> Envelope:
        """Wrap an item; a document that cannot be used becomes its error record."""
        if isinstance(item, Refusal):
            return self._rejection(item, position, earlier)
        text = item.text
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        limit = self._terms.max_document_bytes
        if len(data) > limit:
            problem = f"{len(data)} bytes are more than the {limit} a document may have"
            return self._rejection(
                _refusal(item, Reason.TOO_LARGE, position, problem), position, earlier
            )
        try:
            spec = self._specs.spec(item.options)
            request_id, header = self._header(
                item.custom_id, item.source, spec.digest, _encoding_of(item)
            )
        except (JobRejected, TypeError, ValueError) as error:
            refusal = _refusal(item, Reason.BAD_REQUEST, position, str(error))
            return self._rejection(refusal, position, earlier)
        spec_data = b"" if spec.digest in self._digests_sent else spec.data
        self._digests_sent.add(spec.digest)
        args = (item.custom_id, request_id, header, data, spec.digest, spec_data)
        return Envelope("submit", args, len(data), item, position, earlier)

    def duplicate(self, envelope: Envelope) -> Envelope:
        """Make the error record for a custom id that stood earlier in the submission.

        Results are told apart by their custom id, so the record gets one of its own.
        """
        item, position = envelope.item, envelope.position
        custom_id = f"{item.custom_id}@{position}"
        if isinstance(item, Refusal):
            return self._rejection(
                Refusal(custom_id, item.code, item.message, item.source), position
            )
        message = (
            f"custom_id {item.custom_id!r} stands twice: {envelope.earlier} and {position}; give "
            "each document its own id"
        )
        refusal = Refusal(custom_id, Reason.DUPLICATE_CUSTOM_ID, message, item.source)
        return self._rejection(refusal, position)

    def _rejection(self, refusal: Refusal, position: str, earlier: str | None = None) -> Envelope:
        try:
            _, header = self._header(refusal.custom_id, refusal.source, "")
        except (TypeError, ValueError):  # a source of the caller's own making
            _, header = self._header(refusal.custom_id, None, "")
        message = refusal.message.encode("utf-8", "backslashreplace").decode()
        failure = Failure(code=refusal.code.value, message=message, line=refusal.line)
        body = Body(outcome="failed", error=failure).encode()
        args = (refusal.custom_id, header, body)
        return Envelope("reject", args, len(body), refusal, position, earlier)

    def _header(
        self, custom_id: str, source: Mapping[str, Any] | None, spec: str, encoding: str = "utf-8"
    ) -> tuple[str, bytes]:
        """Return a request id and the header's bytes, written as `wire.Header.encode` does.

        Built by hand, because checking one's own values costs more than all the rest.
        """
        self._num_made += 1
        request_id = f"{self._nonce}-{self._num_made:x}"
        fields: dict[str, Any] = {
            "v": SCHEMA_VERSION,
            "request_id": request_id,
            "job_id": self._terms.job_id,
            "custom_id": custom_id,
            "spec": spec,
            "tier": self._terms.tier,
            "submitted_at": datetime.now(UTC).timestamp(),
            "encoding": encoding,
        }
        if self._terms.deadline_at is not None:
            fields["deadline_at"] = self._terms.deadline_at
        if source is not None:
            fields["source"] = dict(source)
        if self._terms.tenant:
            fields["tenant"] = self._terms.tenant
        return request_id, msgpack.packb(fields)


def _encoding_of(document: Document) -> str:
    return "utf-8" if isinstance(document.text, str) else document.encoding


def _refusal(document: Document, code: Reason, position: str, problem: str) -> Refusal:
    return Refusal(document.custom_id, code, f"{position}: {problem}", document.source)
