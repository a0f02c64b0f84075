"""What becomes of intake entries: read as submissions, and verdicts turned into script calls.

Decides which script is told what of an entry; calls none. May import preprocess and docmill.
"""

import secrets
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from docmill.errors import DecodeError, MessageError
from docmill.keys import TIERS, parts_job
from docmill.report import Report
from docmill.scripts import ScriptName
from docmill.wire import Body, Failure, Header, Spec
from preprocess.base import Divided, Ready, Refused, Submission, Verdict
from workers import log, retry
from workers.models import ModelFiles
from workers.process import Process
from workers.retry import GiveUp, Trouble
from workers.streams import Entry, is_count

_FIELDS = (b"i", b"j", b"h", b"d", b"b", b"n")


@dataclass(frozen=True, slots=True)
class Ending:
    """What prepare.lua is told of an entry: its header, a verdict and its four arguments."""

    entry: Entry
    header: bytes
    verdict: tuple[str, str, bytes, str, int]


@dataclass(frozen=True, slots=True)
class Call:
    """Another script to run on an entry: its name, and its arguments after the entry's id."""

    entry: Entry
    script: ScriptName
    arguments: tuple[str | bytes | int | float, ...]


Step = Ending | Call


@dataclass(frozen=True, slots=True)
class Opened:
    """An intake entry that could be read: its header, and the answers to its document's parts."""

    entry: Entry
    header: Header
    answers: tuple[bytes, ...]
    rounds: int

    def submission(self, spec: Spec) -> Submission:
        """Return what is to be prepared."""
        document = self.entry.fields[b"d"]
        return Submission(self.header, spec, document, self.answers, self.rounds)

    def header_with(self, report: Report | None) -> bytes:
        """Return the header's bytes, with the report put in."""
        if report == self.header.report:
            return self.entry.fields[b"h"]
        return self.header.model_copy(update={"report": report}).encode()

    @property
    def ids(self) -> dict[str, str]:
        """What a log line about it is bound to."""
        return {
            "request_id": self.header.request_id,
            "job_id": self.header.job_id,
            "entry_id": self.entry.entry_id,
        }


def open_entry(entry: Entry) -> Opened:
    """Decode an intake entry.

    Raises:
        MessageError: It is none, or what it holds cannot be read.
    """
    missing = [name.decode() for name in _FIELDS if name not in entry.fields]
    if missing:
        raise DecodeError(f"the entry lacks the fields {', '.join(missing)}")
    rounds = entry.fields.get(b"l", b"0")
    for name, value in ((b"b", entry.fields[b"b"]), (b"n", entry.fields[b"n"]), (b"l", rounds)):
        if not is_count(value):
            raise DecodeError(f"the entry's field {name.decode()} is not a number")
    header = Header.decode(entry.fields[b"h"])
    if header.job_id.encode() != entry.fields[b"j"]:
        raise DecodeError("the entry's header names another job")
    return Opened(entry, header, tuple(_frames(entry.fields.get(b"a", b""))), int(rounds))


def _frames(data: bytes) -> Iterator[bytes]:
    """Yield what lies in a string of frames, each behind its length as four bytes, big-endian."""
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise DecodeError("the answers of the document's parts are cut off")
        yield data[at + 4 : end]
        at = end


class Steps:
    """The steps that one preprocessing worker takes."""

    def __init__(self, process: Process, files: ModelFiles) -> None:
        self._settings = process.settings
        self._keys = process.keys
        self._files = files
        self._config_version = process.settings.digest()
        self._tiers = {process.keys.intake(tier): tier for tier in TIERS}
        self._random = secrets.SystemRandom()

    def step(self, opened: Opened, verdict: Verdict) -> Step:
        """Do what preparation decided."""
        if isinstance(verdict, Ready):
            return self._ready(opened, verdict)
        if isinstance(verdict, Divided):
            return self._split(opened, verdict)
        return self.settle(opened, verdict)

    def _ready(self, opened: Opened, verdict: Ready) -> Ending:
        prepared = verdict.prepared
        bucket = bisect_left(self._settings.bucket_bounds, prepared.prompt_len)
        tier = self._tiers[opened.entry.stream]
        stream = self._keys.ready(self._files.version, tier, bucket)
        told = ("ready", stream, prepared.encode(), prepared.fingerprint, prepared.prompt_len)
        return Ending(opened.entry, opened.header_with(verdict.report), told)

    def _split(self, opened: Opened, verdict: Divided) -> Call:
        """Submit a document's parts, as documents of a job of their own."""
        whole, spec = opened.header, verdict.spec
        digest = spec.digest()
        job_id = parts_job(whole.job_id, whole.request_id, opened.rounds)
        rows: list[str | bytes] = []
        for number, text in enumerate(verdict.parts, start=1):
            request_id = f"{whole.request_id}.{opened.rounds}.{number}"
            named = {"request_id": request_id, "job_id": job_id, "custom_id": str(number)}
            own = {"spec": digest, "encoding": "utf-8", "source": None, "report": None}
            rows += [request_id, whole.model_copy(update=named | own).encode(), text.encode()]
        header = opened.header_with(verdict.report)
        log.get().info("document.split", parts=len(verdict.parts), **opened.ids)
        told = (job_id, header, digest, spec.encode(), *rows)
        return Call(opened.entry, "split", told)

    def settle(self, opened: Opened, verdict: Refused) -> Ending:
        """End a document that gets no answer."""
        log.get().info("document.refused", code=verdict.failure.code, **opened.ids)
        told = ("settle", verdict.outcome, self._body(verdict).encode(), "", 0)
        return Ending(opened.entry, opened.header_with(verdict.report), told)

    def bury(self, entry: Entry, error: MessageError) -> Call:
        """Give up an entry that cannot be read."""
        trouble = retry.trouble(error)
        log.get().warning(
            "entry.buried",
            stream=entry.stream,
            entry_id=entry.entry_id,
            code=trouble.code,
            problem=trouble.message,
            trace=trouble.trace,
        )
        return self._give_up(entry, trouble, GiveUp(trouble.code, trouble.message))

    def _give_up(self, entry: Entry, trouble: Trouble, verdict: GiveUp) -> Call:
        body = self._failed(verdict.code, verdict.message)
        return Call(entry, "bury", (verdict.code, body, verdict.message, trouble.trace))

    def fail(self, entry: Entry, trouble: Trouble) -> Call:
        """Let another delivery try, counted, or give up."""
        limit, deliveries = self._settings.max_deliveries, int(entry.fields[b"n"])
        verdict = retry.decide(trouble, deliveries, limit, self._random.random())
        if isinstance(verdict, GiveUp):
            return self._give_up(entry, trouble, verdict)
        body = self._failed(trouble.code, trouble.message)
        told = (trouble.code, body, trouble.message, trouble.trace, "", "")
        return Call(entry, "redeliver", (1, limit, verdict.delay_s, *told))

    def _failed(self, code: str, message: str) -> bytes:
        return self._body(Refused(Failure(code=code, message=message))).encode()

    def _body(self, verdict: Refused) -> Body:
        return Body(
            outcome=verdict.outcome,
            error=verdict.failure,
            model=self._files.name,
            model_version=self._files.version,
            config_version=self._config_version,
        )
