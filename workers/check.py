"""What would happen to documents, without a model run: the work of `docmill check`.

`python -m workers.check` takes one JSON object on standard input: `settings` (which override
`DOCMILL_*`), `directory`, `inputs`, `reading` (as arguments of `docmill.read`), `options` (what is
asked) and `limit` (documents at most, or null). It reads, wraps and prepares the documents as
client and service do, loading the model's tokenizer alone, and tells on standard output, one JSON
object a line:

    {"event": "preparing", "message": …}         something slow, for a person to read
    {"event": "model", "model": …, "context_len": …}
    {"event": "document", "custom_id": …, …}     once for each document; see `Row`
    {"event": "fatal", "code": …, "message": …}
    {"event": "done", "skipped": …}              files passed over, by suffix

The end of standard input ends it. Knows nothing of queues; sends nothing. May import docmill,
preprocess and the shared modules in workers, but never torch.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel

from docmill import intake
from docmill.envelope import Envelope, Envelopes, Terms
from docmill.errors import DocmillError
from docmill.intake import Document, Item, Skipped
from docmill.keys import parts_job
from docmill.report import Finding, Near, Report, Truncation
from docmill.request import PLACE, SpecBook
from docmill.submission import FirstSeen
from docmill.wire import Body, Failure, Header, Prepared, Spec
from preprocess.base import Divided, Ready, Refused, Submission, Verdict
from preprocess.pipeline import Preprocessor
from workers import log, models
from workers import settings as configuration
from workers.lifecycle import wall_clock
from workers.preparation import preprocessor_for
from workers.service import emit
from workers.tether import hold

#: Documents prepared together, and their bytes: a tenth of a second of tokenising.
_BATCH_DOCS = 64
_BATCH_BYTES = 256 * 1024

Fate = Literal["ready", "truncated", "split", "duplicate", "near_duplicate", "refused"]


class Row(BaseModel):
    """What would happen to one document.

    `tokens` counts the document's own, before anything is cut. `prompt_tokens` are those that the
    model would read, the template's included: of one that is split those of all its parts, to which
    come the passes that combine their answers. `saved_tokens` of them would not be computed, as the
    results' usage will tell it: of a near duplicate those of the document whose answer it takes.
    `same_as` is the custom id of an earlier document whose answer it would share; a near
    duplicate's stands in `near`. `same_id_as` says where its custom id stood before. `ignored` are
    keys of its line that read like an option.
    """

    custom_id: str
    source: dict[str, Any] | None = None
    characters: int | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    saved_tokens: int | None = None
    verdict: Fate
    truncation: Truncation | None = None
    parts: int | None = None
    same_as: str | None = None
    same_id_as: str | None = None
    near: Near | None = None
    findings: tuple[Finding, ...] = ()
    ignored: Mapping[str, str] | None = None
    error: Failure | None = None


class Checker:
    """Tells what would happen to documents, in their order.

    Args:
        preprocessor: Prepares them.
        specs: What is asked about them.
        max_document_bytes: Larger ones are refused.
    """

    def __init__(
        self, preprocessor: Preprocessor, specs: SpecBook, max_document_bytes: int
    ) -> None:
        terms = Terms("check", "batch", None, 1, None, True, max_document_bytes)
        self._envelopes = Envelopes(terms, specs)
        self._preprocessor = preprocessor
        self._seen = FirstSeen()
        self._specs: dict[str, Spec] = {}
        #: By fingerprint: the first document of its kind, and its prompt tokens.
        self._first: dict[str, tuple[str, int]] = {}

    def check(self, items: Iterable[Item]) -> Iterator[Row]:
        """Yield a row for each document.

        Cost: what preparing them costs; memory for the fingerprints of all of them.
        """
        batch: list[Envelope] = []
        num_bytes = 0
        for number, item in enumerate(items, start=1):
            position, earlier = self._seen.note(item, number)
            envelope = self._envelopes.make(item, position, earlier)
            if earlier:
                envelope = replace(self._envelopes.duplicate(envelope), earlier=earlier)
            batch.append(envelope)
            num_bytes += envelope.num_bytes
            if len(batch) >= _BATCH_DOCS or num_bytes >= _BATCH_BYTES:
                yield from self._rows(batch)
                batch, num_bytes = [], 0
        yield from self._rows(batch)

    def _rows(self, batch: Sequence[Envelope]) -> Iterator[Row]:
        opened = [self._open(envelope) for envelope in batch]
        waiting = [item for item in opened if isinstance(item, Submission)]
        verdicts = iter(self._preprocessor.prepare(waiting, wall_clock()))
        for item, envelope in zip(opened, batch, strict=True):
            row = self._row(item, next(verdicts)) if isinstance(item, Submission) else item
            if isinstance(envelope.item, Document) and envelope.item.ignored:
                row = row.model_copy(update={"ignored": envelope.item.ignored})
            yield row

    def _open(self, envelope: Envelope) -> Submission | Row:
        """Return a document as the service gets it, or the row of one that it would not get."""
        if envelope.script == "reject":
            custom_id, header, body = envelope.args
            source, error = Header.decode(header).source, Body.decode(body).error
            return Row(
                custom_id=custom_id,
                source=source,
                verdict="refused",
                same_id_as=envelope.earlier,
                error=error,
            )
        _, _, header, document, digest, spec = envelope.args
        if spec:
            self._specs[digest] = Spec.decode(spec)
        return Submission(Header.decode(header), self._specs[digest], document)

    def _row(self, submission: Submission, verdict: Verdict) -> Row:
        header, report = submission.header, verdict.report or Report()
        known: dict[str, Any] = {
            "custom_id": header.custom_id,
            "source": header.source,
            "characters": _num_characters(submission),
            "truncation": report.truncation,
            "near": report.near,
            "findings": report.findings,
        }
        if isinstance(verdict, Refused):
            return Row(**known, verdict="refused", error=verdict.failure)
        if isinstance(verdict, Divided):
            return Row(**known, verdict="split", **self._parts(submission, verdict))
        prepared, cut = verdict.prepared, report.truncation
        first, saved = self._shared(header.custom_id, prepared)
        fate = _fate(report, is_shared=first is not None)
        return Row(
            **known,
            verdict=fate,
            tokens=cut.original_tokens if cut else prepared.document_len,
            prompt_tokens=prepared.prompt_len,
            saved_tokens=saved or None,
            same_as=first if fate == "duplicate" else None,
        )

    def _shared(self, custom_id: str, prepared: Prepared) -> tuple[str | None, int]:
        """Return whose answer a document would get, and how many prompt tokens that saves."""
        own = (custom_id, prepared.prompt_len)
        if not prepared.fingerprint:
            return None, 0
        first = self._first.setdefault(prepared.fingerprint, own)
        return (None, 0) if first is own else first

    def _parts(self, submission: Submission, divided: Divided) -> dict[str, int | None]:
        """Count what a document's parts cost, prepared as the service prepares them."""
        spec, whole = divided.spec, submission.header
        job_id = parts_job(whole.job_id, whole.request_id, 0)
        own = {"job_id": job_id, "spec": spec.digest(), "encoding": "utf-8"}
        header = whole.model_copy(update=own)
        parts = [Submission(header, spec, part.encode()) for part in divided.parts]
        verdicts = self._preprocessor.prepare(parts, wall_clock())
        ready = [part.prepared for part in verdicts if isinstance(part, Ready)]
        saved = sum(self._shared(whole.custom_id, prepared)[1] for prepared in ready)
        return {
            "tokens": divided.document_len,
            "prompt_tokens": sum(prepared.prompt_len for prepared in ready),
            "saved_tokens": saved or None,
            "parts": len(divided.parts),
        }


def _fate(report: Report, *, is_shared: bool) -> Fate:
    # first, because it has the fingerprint of the earlier document as well
    if report.near is not None and report.near.is_reused:
        return "near_duplicate"
    if is_shared:
        return "duplicate"
    return "truncated" if report.truncation else "ready"


def _num_characters(submission: Submission) -> int | None:
    try:
        return len(submission.document.decode(submission.header.encoding))
    except (UnicodeError, LookupError):
        return None


def check(request: Mapping[str, Any]) -> None:
    """Tell what would happen to the documents that a request names.

    Raises:
        ConfigError, ModelLoadError: The settings or the model cannot be used.
        IntakeError: The input cannot be read at all.
        JobRejected: An option cannot be used.
    """
    settings = configuration.load(**request["settings"])
    log.configure(settings.log_level, settings.log_format, "check")
    os.chdir(request["directory"])
    options: dict[str, Any] = request["options"]
    if not {"prompt", "messages"} & options.keys():
        options = options | {"prompt": PLACE}
    limit = settings.max_document_bytes
    # first, so that a wrong path is told before a model is set up
    skipped = Skipped()
    items = intake.read(
        request["inputs"],
        max_document_bytes=limit,
        on_skipped=skipped.add,
        **request["reading"],
    )
    files = models.for_settings(settings, lambda line: emit("preparing", message=line))
    if request["settings"].get("model"):
        options = options | {"model": files.name}  # as `docmill run` asks it
    specs, preprocessor = SpecBook(options), preprocessor_for(settings, files)
    emit("model", model=files.name, context_len=files.context_len)
    for row in Checker(preprocessor, specs, limit).check(islice(items, request["limit"])):
        emit("document", **row.model_dump(mode="json", exclude_none=True))
    emit("done", skipped=skipped.by_suffix)


def main() -> int:
    """Check what standard input asks for, and return the exit status."""
    argparse.ArgumentParser(
        prog="python -m workers.check", description=(__doc__ or "").partition("\n")[0]
    ).parse_args()
    request = json.loads(sys.stdin.readline())
    hold(sys.stdin.fileno())
    try:
        check(request)
    except DocmillError as error:
        emit("fatal", code=error.code, message=error.message)
        return log.EXIT_CONFIG
    return 0


if __name__ == "__main__":
    sys.exit(main())
