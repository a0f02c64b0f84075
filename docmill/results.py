"""What came of a document, as a caller sees it.

Turns header and body from the wire into a `Result`, and that into the OpenAI Batch result format
and back. Decides nothing about where results are read from. May import docmill.wire.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast, get_args

from docmill.errors import (
    InvalidDocument,
    JobFailed,
    MessageError,
    Reason,
    ResultExpired,
    from_code,
)
from docmill.report import Division, Finding, Near, Report, Truncation
from docmill.wire import Body, Failure, Header, Outcome, Timings, Usage

#: How an answer came about: computed for this document; shared with one that was being computed;
#: taken from an earlier one; or the document never reached an engine.
Shared = Literal["run", "follower", "cached", "rejected"]

_SHARED = frozenset(get_args(Shared))
_REASONS = frozenset(Reason)
#: JSON need not escape these, but some readers cut lines at them, or a terminal obeys them.
_UNSAFE = (*range(0x7F, 0xA0), 0x2028, 0x2029)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSAFE}


@dataclass(frozen=True, slots=True)
class Result:
    """One document's answer, or why it has none.

    `finished_at` is in UNIX seconds. `source` says where the document came from, as intake saw it.
    `truncation` tells what was cut, `division` that it was answered in parts, `findings` what rules
    found in it (`warnings` are their ids), and `near` which earlier document says almost the same.
    `spec` is the digest of what was asked: prompt and parameters, without the document. `cursor` is
    its place among the job's results, for `Job.results(after=…)`.
    """

    custom_id: str
    outcome: Outcome
    job_id: str = ""
    request_id: str = ""
    text: str | None = None
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    truncation: Truncation | None = None
    division: Division | None = None
    findings: tuple[Finding, ...] = ()
    near: Near | None = None
    warnings: tuple[str, ...] = ()
    model: str | None = None
    model_version: str | None = None
    config_version: str | None = None
    error: Failure | None = None
    source: Mapping[str, Any] | None = None
    spec: str = ""
    shared: Shared = "run"
    finished_at: float = 0.0
    cursor: str | None = field(default=None, compare=False)

    @classmethod
    def from_wire(
        cls, entry_id: bytes, fields: Mapping[bytes, bytes], shared_body: bytes | None = None
    ) -> Self:
        """Build a result from an entry of a job's result stream.

        What cannot be read, or is gone, is a failure of its document alone. One whose header cannot
        be read is named after its entry.

        Args:
            entry_id: The entry's id.
            fields: Its fields.
            shared_body: The body that its field `s` names, where it has none of its own.
        """
        finished_at = int(entry_id.partition(b"-")[0]) / 1000  # ids open with milliseconds
        try:
            header = Header.decode(fields.get(b"h", b""))
        except MessageError as error:
            return cls(
                custom_id=f"unreadable-{entry_id.decode()}",
                outcome="failed",
                error=_unreadable(error),
                finished_at=finished_at,
                cursor=entry_id.decode(),
            )
        body = _read_body(fields.get(b"b") or (shared_body if b"s" in fields else b""))
        shared = fields.get(b"d", b"run").decode(errors="replace")
        # services that knew no reports put into the body what they had to say
        report = header.report or Report(truncation=body.truncation)
        warnings = report.warnings if header.report else body.warnings
        return cls(
            custom_id=header.custom_id,
            outcome=body.outcome,
            job_id=header.job_id,
            request_id=header.request_id,
            text=body.text,
            finish_reason=body.finish_reason,
            usage=body.usage,
            timings=body.timings,
            truncation=report.truncation,
            division=report.division,
            findings=report.findings,
            near=report.near,
            warnings=warnings,
            model=body.model,
            model_version=body.model_version,
            config_version=body.config_version,
            error=body.error,
            source=header.source,
            spec=header.spec,
            shared=cast("Shared", shared if shared in _SHARED else "run"),
            finished_at=finished_at,
            cursor=entry_id.decode(),
        )

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.outcome == "succeeded"

    def raise_for_error(self) -> Self:
        """Return the result itself, if there is an answer.

        Raises:
            InvalidDocument: The document was refused; `reason` says why.
            DocmillError: The class that the error's code names; its context holds the custom id.
        """
        if self.ok:
            return self
        error = self._failure()
        message = about(self.custom_id, error.message)
        context = {"custom_id": self.custom_id, "code": error.code}
        if error.code in _REASONS:
            raise InvalidDocument(Reason(error.code), message, **context)
        raise from_code(error.code)(message, **context)

    def _failure(self) -> Failure:
        return self.error or Failure(code=JobFailed.code, message=f"the document {self.outcome}")

    def to_openai(self) -> dict[str, Any]:
        """Return the record in the OpenAI Batch result format, docmill's extras under `docmill`."""
        extras = self._extras()
        record: dict[str, Any] = {"id": f"batch_req_{self.request_id}", "custom_id": self.custom_id}
        if self.ok:
            response = {
                "status_code": 200,
                "request_id": self.request_id,
                "body": self._chat_completion() | {"docmill": extras},
            }
            return record | {"response": response, "error": None}
        return record | {
            "response": None,
            "error": self._failure().model_dump(exclude_none=True) | {"docmill": extras},
        }

    def _chat_completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text, "refusal": None}
        usage = self.usage
        return {
            "id": f"chatcmpl-{self.request_id}",
            "object": "chat.completion",
            "created": int(self.finished_at),
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": self.finish_reason,
                }
            ],
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            },
        }

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = {
            "job_id": self.job_id,
            "outcome": self.outcome,
            "shared": self.shared,
            "timings": self.timings.model_dump(),
            "truncation": self.truncation and self.truncation.model_dump(),
            "division": self.division and self.division.model_dump(),
            "findings": [finding.model_dump() for finding in self.findings],
            "near": self.near and self.near.model_dump(),
            "warnings": list(self.warnings),
            "model_version": self.model_version,
            "config_version": self.config_version,
            "source": self.source and dict(self.source),
            "spec": self.spec,
            "finished_at": self.finished_at,
        }
        return {name: value for name, value in extras.items() if value}

    def to_json(self) -> str:
        """Return `to_openai()` as one line of JSON without its line feed."""
        return json_line(self.to_openai())

    @classmethod
    def from_openai(cls, record: Mapping[str, Any]) -> Self:
        """Read a record that `to_openai` wrote; one written by others gives what it has.

        Raises:
            KeyError, TypeError, ValueError: It is no such record.
        """
        response, error = record.get("response"), record.get("error")
        body = response["body"] if response else {}
        extras = (body if response else error or {}).get("docmill", {})
        shared: dict[str, Any] = {
            "custom_id": record["custom_id"],
            "request_id": str(record.get("id", "")).removeprefix("batch_req_"),
            "job_id": extras.get("job_id", ""),
            "shared": extras.get("shared", "run"),
            "timings": Timings(**extras.get("timings", {})),
            "truncation": Truncation(**extras["truncation"]) if "truncation" in extras else None,
            "division": Division(**extras["division"]) if "division" in extras else None,
            "findings": tuple(Finding(**finding) for finding in extras.get("findings", ())),
            "near": Near(**extras["near"]) if "near" in extras else None,
            "warnings": tuple(extras.get("warnings", ())),
            "model_version": extras.get("model_version"),
            "config_version": extras.get("config_version"),
            "source": extras.get("source"),
            "spec": extras.get("spec", ""),
            "finished_at": extras.get("finished_at", float(body.get("created", 0))),
        }
        if not response:
            failure = {"code": "job_failed", "message": "no response"} | (error or {})
            return cls(outcome=extras.get("outcome", "failed"), error=Failure(**failure), **shared)
        choice, usage = body["choices"][0], body.get("usage", {})
        return cls(
            outcome="succeeded",
            text=choice["message"]["content"],
            finish_reason=choice.get("finish_reason"),
            model=body.get("model"),
            usage=Usage(
                prompt_tokens=usage.get("prompt_tokens", 0),
                completion_tokens=usage.get("completion_tokens", 0),
                cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
            ),
            **shared,
        )


def json_line(value: Any) -> str:
    """Return a value as one line of JSON that no reader cuts in two and no terminal obeys."""
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)


def about(custom_id: str, message: str) -> str:
    """Name the document before a message about it, unless that opens with its name."""
    return message if message.startswith(f"{custom_id}:") else f"{custom_id}: {message}"


def _read_body(data: bytes | None) -> Body:
    if data is None:
        failure = Failure(code=ResultExpired.code, message="the answer is gone from Redis")
        return Body(outcome="failed", error=failure)
    try:
        return Body.decode(data)
    except MessageError as error:
        return Body(outcome="failed", error=_unreadable(error))


def _unreadable(error: MessageError) -> Failure:
    return Failure(code=error.code, message=f"the result cannot be read: {error}")
