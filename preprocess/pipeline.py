"""A batch of documents in, a verdict on each out: ready for an engine, or refused and why.

Decides the order of the steps: who asks what, the text, its tokens, what fits, the fingerprint.
Pure: the clock is passed in, and nothing a document or a request holds makes it raise. May import
docmill.wire, docmill.errors and the other modules of this package.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from docmill.errors import Reason
from docmill.wire import Failure, Header, Prepared, Spec
from preprocess import checks, template, truncate
from preprocess.base import Ready, Refused, Submission, TemplateRefusal, Tokenizer, Tokens
from preprocess.fingerprint import Fingerprints

_MAX_PLANS = 1024
#: Bounds what one call of the tokenizer holds: its own records take some 60 bytes a token.
_MAX_ENCODE_CHARS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Served:
    """The model that documents are prepared for, and the service's limits."""

    model_name: str
    model_version: str
    context_len: int
    max_document_bytes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is the same for all documents of a spec."""

    leading: bytes
    trailing: bytes
    prefix_len: int
    room: truncate.Room
    instruction: str
    fingerprints: Fingerprints


@dataclass(frozen=True, slots=True)
class _Checked:
    """A document on its way: its place in the batch, its plan and its text."""

    at: int
    submission: Submission
    plan: _Plan
    text: checks.Text


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
        self._num_seen = 0
        self._plans: OrderedDict[tuple[str, str, date], _Plan | Failure] = OrderedDict()

    def prepare(self, batch: Sequence[Submission], now: float) -> list[Ready | Refused]:
        """Return the verdict on each document, in the order of the batch.

        Args:
            batch: Each header's `spec` must be the digest of the spec beside it.
            now: The moment, in UNIX seconds.

        Cost: tokenising, some 0.3 µs a byte; all else some 50 µs a document.
        """
        started = self._clock()
        moment = datetime.fromtimestamp(now).astimezone()
        verdicts: dict[int, Ready | Refused] = {}
        checked: list[_Checked] = []
        for at, submission in enumerate(batch):
            outcome = self._check(at, submission, moment)
            if isinstance(outcome, _Checked):
                checked.append(outcome)
            else:
                verdicts[at] = _with_line(outcome, submission)
        encoded = self._encode([item.text.text for item in checked])
        elapsed = self._clock() - started
        per_byte = elapsed / max(1, sum(len(item.submission.document) for item in checked))
        for item, tokens in zip(checked, encoded, strict=True):
            seconds = per_byte * len(item.submission.document)
            verdict = self._finish(item, tokens, now + elapsed, seconds)
            verdicts[item.at] = _with_line(verdict, item.submission)
        return [verdicts[at] for at in range(len(batch))]

    def take_num_seen(self) -> int:
        """Return how many documents were known already, since this was last asked."""
        num_seen, self._num_seen = self._num_seen, 0
        return num_seen

    def _check(self, at: int, submission: Submission, moment: datetime) -> _Checked | Refused:
        header, spec = submission.header, submission.spec
        if header.deadline_at is not None and header.deadline_at <= moment.timestamp():
            message = "the deadline passed before the document was prepared"
            return Refused(Failure(code="expired", message=message), "expired")
        if spec.model not in (None, self._served.model_name):
            served = self._served.model_name
            message = (
                f"unknown model {spec.model!r}; served here: {served!r} (name it when submitting, "
                "and it is asked whatever the documents name)"
            )
            return Refused(Failure(code=Reason.UNKNOWN_MODEL, message=message))
        plan = self._plan(header, spec, moment)
        if isinstance(plan, Failure):
            return Refused(plan)
        text = checks.read(submission.document, header.encoding, self._served.max_document_bytes)
        if isinstance(text, Failure):
            return Refused(text)
        return _Checked(at, submission, plan, text)

    def _plan(self, header: Header, spec: Spec, moment: datetime) -> _Plan | Failure:
        """Return the spec's plan; made anew each day, because a template may write the date."""
        key = (header.spec, header.tenant, moment.date())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(spec, header.tenant, moment)
            if len(self._plans) > _MAX_PLANS:
                self._plans.popitem(last=False)
        return plan

    def _make_plan(self, spec: Spec, tenant: str, moment: datetime) -> _Plan | Failure:
        try:
            prompt = template.build(spec, self._tokenizer, moment)
        except TemplateRefusal as error:
            return Failure(code=Reason.BAD_REQUEST, message=str(error))
        room = truncate.Room(
            self._served.context_len, len(prompt), spec.max_tokens, spec.max_document_tokens
        )
        leading, trailing = _pack(prompt.leading), _pack(prompt.trailing)
        version = self._served.model_version
        return room.shortage() or _Plan(
            leading=leading,
            trailing=trailing,
            prefix_len=len(prompt.leading),
            room=room,
            instruction=truncate.instruction_of(spec),
            fingerprints=Fingerprints(spec, version, tenant, leading, trailing),
        )

    def _encode(self, texts: Sequence[str]) -> Iterator[Tokens | None]:
        first, num_chars = 0, 0
        for at, text in enumerate(texts):
            if num_chars > _MAX_ENCODE_CHARS:
                yield from self._tokenizer.encode_documents(texts[first:at])
                first, num_chars = at, 0
            num_chars += len(text)
        if first < len(texts):
            yield from self._tokenizer.encode_documents(texts[first:])

    def _finish(
        self, item: _Checked, tokens: Tokens | None, ready_at: float, seconds: float
    ) -> Ready | Refused:
        spec, plan = item.submission.spec, item.plan
        if tokens is None or len(tokens) == 0:
            message = "the model's tokenizer has no tokens for this document"
            return Refused(Failure(code=Reason.NOT_TEXT, message=message))
        policy = "semantic" if spec.truncate == "split" else spec.truncate
        fit = truncate.fit(
            item.text.text, tokens, plan.room, policy, plan.instruction, self._tokenizer
        )
        if isinstance(fit, Failure):
            return Refused(fit)
        cut = fit.truncation
        document = _pack(fit.tokens)
        prompt = b"".join((plan.leading, document, plan.trailing))
        warnings = self._warnings(item.text)
        prepared = Prepared(
            tokens=prompt,
            prefix_len=plan.prefix_len,
            document_len=len(fit.tokens),
            fingerprint=plan.fingerprints.of(document, None if cut else item.text.text),
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            top_p=spec.top_p,
            stop=spec.stop,
            seed=spec.seed,
            truncation=cut,
            ready_at=ready_at,
            preprocess_s=seconds,
            warnings=warnings,
        )
        return Ready(prepared)

    def _warnings(self, text: checks.Text) -> tuple[str, ...]:
        if self._tokenizer.spells_control_token(text.text):
            return (*text.warnings, "control_tokens_in_text")
        return text.warnings


def _pack(tokens: Tokens) -> bytes:
    return tokens.astype("<u4", copy=False).tobytes()


def _with_line(verdict: Ready | Refused, submission: Submission) -> Ready | Refused:
    """Add the line that the document came from to a refusal."""
    line = (submission.header.source or {}).get("line")
    if isinstance(verdict, Ready) or not isinstance(line, int):
        return verdict
    return Refused(verdict.failure.model_copy(update={"line": line}), verdict.outcome)
