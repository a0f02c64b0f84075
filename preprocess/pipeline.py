"""A batch of documents in, a verdict on each out: ready for an engine, divided, or refused and why.

Decides the order of the steps: who asks what, whether the document came by lately, its text, what
the rules say, its tokens, what fits, the fingerprint, what is almost equal. What each step decides
lies in a module of its own. Nothing a document or a request holds makes it raise. May import
docmill.wire, docmill.errors and the other modules of this package.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from blake3 import blake3

from docmill.errors import Reason
from docmill.keys import is_parts_job
from docmill.report import Finding, Near, Report
from docmill.wire import Failure, Prepared
from preprocess import checks, combine, divide, rules, truncate
from preprocess.base import (
    Divided,
    Ready,
    Refused,
    Submission,
    Tokenizer,
    Tokens,
    Verdict,
    pack,
)
from preprocess.near import NearIndex
from preprocess.plans import Plan, Plans, Served
from preprocess.seen import SeenDocuments

#: Bounds what one call of the tokenizer holds: its own records take some 60 bytes a token.
_MAX_ENCODE_CHARS = 4 * 1024 * 1024
#: Verdicts on repeats that are kept, and documents that later ones are compared with.
_SEEN_BYTES = 32 * 1024 * 1024
_NEAR_DOCUMENTS = 16_384


@dataclass(frozen=True, slots=True)
class _Checked:
    """A document on its way: its place in the batch, its plan, its text and what was found in it.

    `key` names it among the documents seen lately; b'' for one that is not kept there.
    """

    at: int
    submission: Submission
    plan: Plan
    text: str
    report: Report
    key: bytes = b""


class Preprocessor:
    """Prepares documents for one model. One thread at a time.

    Args:
        tokenizer: The model's.
        served: Which model, and the limits.
        clock: Seconds that only run forwards; used to tell how long a document took.
    """

    def __init__(self, tokenizer: Tokenizer, served: Served, *, clock: Callable[[], float]) -> None:
        self._tokenizer = tokenizer
        self._served = served
        self._clock = clock
        self._plans = Plans(tokenizer, served)
        self._seen: SeenDocuments[Verdict] = SeenDocuments(_SEEN_BYTES)
        self._near = NearIndex(_NEAR_DOCUMENTS)
        self._num_told = 0

    def prepare(self, batch: Sequence[Submission], now: float) -> list[Verdict]:
        """Return the verdict on each document, in the order of the batch.

        Args:
            batch: Each header's `spec` must be the digest of the spec beside it.
            now: The moment, in UNIX seconds.

        Cost: tokenising, some 0.3 µs a byte; all else some 0.1 µs a byte and 150 µs a document. A
        document that came by lately costs some 20 µs.
        """
        started = self._clock()
        moment = datetime.fromtimestamp(now).astimezone()
        verdicts: dict[int, Verdict] = {}
        checked: list[_Checked] = []
        for at, submission in enumerate(batch):
            outcome = self._check(at, submission, moment)
            if isinstance(outcome, _Checked):
                checked.append(outcome)
            else:
                verdicts[at] = outcome
        encoded = self._encode([item.text for item in checked])
        per_char = (self._clock() - started) / max(1, sum(len(item.text) for item in checked))
        for item, tokens in zip(checked, encoded, strict=True):
            begun = self._clock()
            verdict = self._finish(item, tokens)
            if item.key:
                self._seen.put(item.key, verdict, _size_of(verdict))
            done = self._clock()
            seconds = per_char * len(item.text) + done - begun
            verdicts[item.at] = _timed(verdict, now + done - started, seconds)
        return [_with_line(verdicts[at], submission) for at, submission in enumerate(batch)]

    def take_num_seen(self) -> int:
        """Return how many documents had been seen lately, since this was last asked."""
        num_new = self._seen.num_hits - self._num_told
        self._num_told = self._seen.num_hits
        return num_new

    def _check(self, at: int, submission: Submission, moment: datetime) -> _Checked | Verdict:
        header = submission.header
        if header.deadline_at is not None and header.deadline_at <= moment.timestamp():
            message = "the deadline passed before the document was prepared"
            return Refused(Failure(code="expired", message=message), "expired")
        spec, digest = submission.spec, header.spec
        if submission.answers:
            spec = divide.combine_spec(spec)
            digest = spec.digest()
        plan = self._plans.get(spec, digest, header.tenant, moment)
        if isinstance(plan, Failure):
            return Refused(plan)
        if submission.answers:
            return self._combine(at, submission, plan)
        # where no answer is shared a copy is a document of its own, and is told what it is near to
        key = _key_of(submission, plan) if plan.fingerprints.is_shareable else b""
        if key and (seen := self._seen.get(key)):
            return _timed(seen, moment.timestamp(), 0.0)
        found = self._read(submission, plan)
        if isinstance(found, Refused):
            if key:
                self._seen.put(key, found, _size_of(found))
            return found
        return _Checked(at, submission, plan, found[0], Report(findings=found[1]), key)

    def _combine(self, at: int, submission: Submission, plan: Plan) -> _Checked | Verdict:
        """Make one text of the answers to a document's parts, or have them combined in groups."""
        outcome = combine.combine(submission, plan, self._tokenizer)
        if isinstance(outcome, combine.Text):
            return _Checked(at, submission, plan, outcome.text, outcome.report)
        return outcome

    def _read(
        self, submission: Submission, plan: Plan
    ) -> tuple[str, tuple[Finding, ...]] | Refused:
        """Return the document's text as it may go on, and what was found in it.

        Of a part nothing is asked: its document passed, and was mended, as a whole.
        """
        if is_parts_job(submission.header.job_id):
            return submission.document.decode("utf-8", "replace"), ()
        limit = self._served.max_document_bytes
        text = checks.read(submission.document, submission.header.encoding, limit)
        if isinstance(text, Failure):
            return Refused(text)
        inspection = rules.inspect(text.text, plan.policies, self._tokenizer.spells_control_token)
        failure = inspection.failure or truncate.too_long_at_sight(
            inspection.text, plan.room, plan.spec.truncate, self._tokenizer
        )
        if failure:
            return Refused(failure, report=_or_none(Report(findings=inspection.findings)))
        return inspection.text, inspection.findings

    def _encode(self, texts: Sequence[str]) -> Iterator[Tokens | None]:
        first, num_chars = 0, 0
        for at, text in enumerate(texts):
            if num_chars > _MAX_ENCODE_CHARS:
                yield from self._tokenizer.encode_documents(texts[first:at])
                first, num_chars = at, 0
            num_chars += len(text)
        if first < len(texts):
            yield from self._tokenizer.encode_documents(texts[first:])

    def _finish(self, item: _Checked, tokens: Tokens | None) -> Verdict:
        spec, plan, report = item.plan.spec, item.plan, item.report
        refuse = partial(Refused, report=_or_none(report))
        if tokens is None or len(tokens) == 0:
            message = "the model's tokenizer has no tokens for this document"
            return refuse(Failure(code=Reason.NOT_TEXT, message=message))
        if spec.truncate == "split" and len(tokens) > plan.room.document_len:
            return self._divide(item, tokens)
        policy = "refuse" if spec.truncate == "split" else spec.truncate
        fit = truncate.fit(item.text, tokens, plan.room, policy, plan.instruction, self._tokenizer)
        if isinstance(fit, Failure):
            return refuse(fit)
        document = pack(fit.tokens)
        own = plan.fingerprints.of(document, None if fit.truncation else item.text)
        near, fingerprint = self._look_for_near(item, fit.text, own)
        prepared = Prepared(
            tokens=b"".join((plan.leading, document, plan.trailing)),
            prefix_len=plan.prefix_len,
            document_len=len(fit.tokens),
            fingerprint=fingerprint,
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            top_p=spec.top_p,
            stop=spec.stop,
            seed=spec.seed,
        )
        noticed = {"truncation": fit.truncation, "near": near}
        return Ready(prepared, _or_none(report.model_copy(update=noticed)))

    def _divide(self, item: _Checked, tokens: Tokens) -> Verdict:
        spec = divide.part_spec(item.plan.spec)
        if item.plan.not_combining:
            return Refused(item.plan.not_combining, report=_or_none(item.report))
        parts = divide.parts(item.text, tokens, item.plan.room.document_len, self._tokenizer)
        near, _ = self._look_for_near(item, item.text, "")
        report = _or_none(item.report.model_copy(update={"near": near}))
        if isinstance(parts, Failure):
            return Refused(parts, report=report)
        return Divided(spec, parts, report, len(tokens))

    def _look_for_near(self, item: _Checked, text: str, own: str) -> tuple[Near | None, str]:
        """Return the document that is almost equal, and whose answer is to be asked for."""
        header, threshold = item.submission.header, item.plan.spec.near_threshold
        if item.submission.answers or is_parts_job(header.job_id):
            return None, own
        match = self._near.look(
            *(item.plan.scope, text, header.custom_id, header.job_id, own), reuse_from=threshold
        )
        if match is None:
            return None, own
        if match.is_reusable:
            return match.near.model_copy(update={"is_reused": True}), match.fingerprint
        return match.near, own


def _key_of(submission: Submission, plan: Plan) -> bytes:
    """Name a document and all that decides what becomes of it."""
    header = submission.header
    digest = blake3(repr((plan.scope, header.encoding, is_parts_job(header.job_id))).encode())
    digest.update(submission.document)
    return digest.digest()


def _or_none(report: Report) -> Report | None:
    return report if report != Report() else None


def _size_of(verdict: Verdict) -> int:
    """Return about how many bytes a verdict takes."""
    if isinstance(verdict, Ready):
        return 2_000 + len(verdict.prepared.tokens)
    if isinstance(verdict, Divided):
        return 2_000 + 4 * sum(map(len, verdict.parts))
    return 1_000


def _timed(verdict: Verdict, ready_at: float, seconds: float) -> Verdict:
    if not isinstance(verdict, Ready):
        return verdict
    times = {"ready_at": ready_at, "preprocess_s": seconds}
    return replace(verdict, prepared=verdict.prepared.model_copy(update=times))


def _with_line(verdict: Verdict, submission: Submission) -> Verdict:
    """Add the line that the document came from to a refusal."""
    line = (submission.header.source or {}).get("line")
    if not isinstance(verdict, Refused) or not isinstance(line, int):
        return verdict
    return replace(verdict, failure=verdict.failure.model_copy(update={"line": line}))
