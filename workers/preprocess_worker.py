"""The preprocessing worker: submitted documents in, prepared ones out.

`python -m workers.preprocess_worker`, configured by `DOCMILL_*`. Decides what is read together and
where a prepared document goes; what becomes of a document is decided in `preprocess`. One thread
reads, prepares and writes; tokenising frees the interpreter, so that the heartbeat goes on beside
it. SIGTERM stops the reading; what was read is finished. A document that was delivered before may
be what ended its worker: it is prepared by itself, and Redis is told so, that no other is blamed.
May import preprocess and docmill.
"""

import secrets
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from docmill.errors import BrokerUnavailable, DecodeError, DocmillError, MessageError
from docmill.keys import GROUP, TIERS
from docmill.scripts import ScriptName, Scripts
from docmill.wire import Body, Failure, Header
from preprocess.base import Ready, Refused, Submission, Tokenizer
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.pipeline import Preprocessor, Served
from preprocess.tokenizer import ModelTokenizer
from workers import log, models, retry
from workers.lifecycle import EXIT_LEFT, HANG_LIMIT_S, wall_clock
from workers.models import ModelFiles
from workers.process import Process, command_line, run
from workers.retry import GiveUp, Trouble
from workers.specs import SpecStore
from workers.streams import Entry, Outage, StreamReader, insist, is_count, run_pipelined

_MAX_COUNT = 64
#: Aimed at in one read of a stream: half a second of tokenising, so an interactive document that
#: comes meanwhile waits no longer.
_READ_BYTES = 1_000_000
#: What scripts answer when they did what they were told.
_VERDICTS = frozenset(
    {b"READY", b"FOLLOWS", b"CACHED", b"SETTLED", b"DROPPED", b"OK", b"BACK", b"LATER", b"DEAD"}
)
#: How long Redis knows what is prepared alone: until the reaper has looked, whenever it ends.
_ALONE_S = int(HANG_LIMIT_S) + 60
_FIELDS = (b"i", b"j", b"h", b"d", b"b", b"n")


@dataclass(frozen=True, slots=True)
class _Ending:
    """What prepare.lua is told of an entry: a verdict and its three arguments."""

    entry: Entry
    verdict: tuple[str, str, bytes, str]


@dataclass(frozen=True, slots=True)
class _Call:
    """Another script to run on an entry: its name, and its arguments after the entry's id."""

    entry: Entry
    script: ScriptName
    arguments: tuple[str | bytes | int | float, ...]


_Step = _Ending | _Call


class PreprocessWorker:
    """Prepares what comes in until the process is asked to stop."""

    def __init__(self, process: Process, files: ModelFiles, preprocessor: Preprocessor) -> None:
        self._process = process
        self._files = files
        self._preprocessor = preprocessor
        self._config_version = process.settings.digest()
        self._tiers = {process.keys.intake(tier): tier for tier in TIERS}
        self._scripts = Scripts(process.client, process.keys.prefix)
        self._outage = Outage(process.pause)
        self._specs = SpecStore(process.client, process.keys)
        self._reader = StreamReader(
            process.client, process.consumer, list(self._tiers), outage=self._outage
        )
        self._random = secrets.SystemRandom()
        self._count = 1

    def serve(self) -> None:
        """Prepare documents until the process is asked to stop."""
        presence = self._process.presence
        presence.announce("ready", model=self._files.name, model_version=self._files.version)
        while not self._process.stop.is_set():
            self.turn()
        presence.announce("draining")

    def turn(self) -> None:
        """Read once, and finish what came."""
        self._process.progress.touch()
        entries = self._reader.read(self._count)
        # first, so that none of them is held, and blamed, while others are prepared together
        self._finish_each_alone([entry for entry in entries if _is_suspect(entry)])
        others = [entry for entry in entries if not _is_suspect(entry)]
        # the reader gives the interactive tier first; it does not wait for the other's tokens
        for _, group in groupby(others, key=lambda entry: entry.stream):
            self._finish(list(group))
        if entries:
            mean_bytes = sum(len(entry.fields.get(b"d", b"")) for entry in entries) / len(entries)
            wanted = int(_READ_BYTES / max(1.0, mean_bytes))
            # doubles at most: what comes next may be larger
            self._count = max(1, min(wanted, 2 * self._count, _MAX_COUNT))

    def _finish_each_alone(self, entries: Sequence[Entry]) -> None:
        """Prepare entries one by one; whoever looks after a death finds which one it was."""
        for entry in entries:
            self._process.progress.touch()
            self._work_alone_on(entry.entry_id)
            self._finish([entry])
        if entries:
            self._work_alone_on("")

    def _work_alone_on(self, entry_id: str) -> None:
        told = (self._process.consumer, entry_id, _ALONE_S)
        stop = self._process.stop
        insist(lambda: self._scripts.call("alone", *told), self._outage, stop.is_set)

    def _finish(self, entries: Sequence[Entry]) -> None:
        opened: list[tuple[Entry, Header]] = []
        steps: list[_Step] = []
        for entry in entries:
            try:
                opened.append((entry, _open(entry)))
            except MessageError as error:
                steps.append(self._bury(entry, error))
        wanted = {(header.job_id, header.spec) for _, header in opened}
        specs = insist(lambda: self._specs.get(wanted), self._outage, self._process.stop.is_set)
        submissions: list[tuple[Entry, Submission]] = []
        for entry, header in opened:
            spec = specs[header.job_id, header.spec]
            if isinstance(spec, Failure):
                steps.append(self._settle(entry, header, Refused(spec)))
            else:
                submissions.append((entry, Submission(header, spec, entry.fields[b"d"])))
        self._send(steps + self._prepare(submissions))

    def _prepare(self, batch: Sequence[tuple[Entry, Submission]]) -> list[_Step]:
        try:
            verdicts = self._preprocessor.prepare([item for _, item in batch], wall_clock())
        except Exception as error:  # noqa: BLE001 - it must cost one document, not its neighbours
            if len(batch) > 1:
                return [step for item in batch for step in self._prepare([item])]
            entry, submission = batch[0]
            trouble = retry.trouble(error)
            ids = _ids(entry, submission.header)
            log.get().exception("document.failed", code=trouble.code, trace=trouble.trace, **ids)
            return [self._fail(entry, trouble)]
        return [
            self._ready(entry, verdict)
            if isinstance(verdict, Ready)
            else self._settle(entry, submission.header, verdict)
            for (entry, submission), verdict in zip(batch, verdicts, strict=True)
        ]

    def _ready(self, entry: Entry, verdict: Ready) -> _Ending:
        prepared = verdict.prepared
        bucket = bisect_left(self._process.settings.bucket_bounds, prepared.prompt_len)
        tier = self._tiers[entry.stream]
        stream = self._process.keys.ready(self._files.version, tier, bucket)
        return _Ending(entry, ("ready", stream, prepared.encode(), prepared.fingerprint))

    def _settle(self, entry: Entry, header: Header, verdict: Refused) -> _Ending:
        log.get().info("document.refused", code=verdict.failure.code, **_ids(entry, header))
        return _Ending(entry, ("settle", verdict.outcome, self._body(verdict).encode(), ""))

    def _bury(self, entry: Entry, error: MessageError) -> _Call:
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

    def _give_up(self, entry: Entry, trouble: Trouble, verdict: GiveUp) -> _Call:
        body = self._failed(verdict.code, verdict.message)
        return _Call(entry, "bury", (verdict.code, body, verdict.message, trouble.trace))

    def _fail(self, entry: Entry, trouble: Trouble) -> _Call:
        """Let another delivery try, counted, or give up."""
        limit, deliveries = self._process.settings.max_deliveries, int(entry.fields[b"n"])
        verdict = retry.decide(trouble, deliveries, limit, self._random.random())
        if isinstance(verdict, GiveUp):
            return self._give_up(entry, trouble, verdict)
        body = self._failed(trouble.code, trouble.message)
        told = (trouble.code, body, trouble.message, trouble.trace, "", "")
        return _Call(entry, "redeliver", (1, limit, verdict.delay_s, *told))

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

    def _send(self, steps: Sequence[_Step]) -> None:
        """Run the scripts, repeating until Redis answers: each is fenced by the entry's owner."""
        endings = [step for step in steps if isinstance(step, _Ending)]
        calls = [step for step in steps if isinstance(step, _Call)]
        told: list[_Step] = [*endings, *calls]
        num_attempts = 0

        def attempt() -> list[Any]:
            nonlocal num_attempts
            num_attempts += 1
            return [*self._end(endings), *self._run(calls)]

        replies = insist(attempt, self._outage, self._process.stop.is_set)
        lost = [step for step, reply in zip(told, replies, strict=True) if reply == b"LOST"]
        if lost and num_attempts == 1:  # later it may be our own first attempt that took them
            log.get().warning("lease.lost", count=len(lost), entry_id=lost[0].entry.entry_id)
        failed: list[_Step] = []
        for step, reply in zip(told, replies, strict=True):
            if reply != b"LOST" and reply not in _VERDICTS:
                entry_id, problem = step.entry.entry_id, str(reply)
                log.get().error("entry.failed", entry_id=entry_id, problem=problem)
                if isinstance(step, _Ending):
                    trouble = Trouble(DocmillError.code, problem, is_retryable=True)
                    failed.append(self._fail(step.entry, trouble))
        if failed:
            self._send(failed)

    def _end(self, endings: Sequence[_Ending]) -> Iterator[bytes]:
        for first in range(0, len(endings), _MAX_COUNT):
            rows: list[str | bytes] = []
            for ending in endings[first : first + _MAX_COUNT]:
                entry = ending.entry
                rows += [entry.stream, entry.entry_id]
                rows += [entry.fields[name] for name in (b"i", b"j", b"b", b"h")]
                rows += ending.verdict
            yield from self._scripts.call("prepare", GROUP, self._process.consumer, *rows)

    def _run(self, calls: Sequence[_Call]) -> list[Any]:
        if not calls:
            return []

        def queue(pipe: Any) -> None:
            for call in calls:
                owned = (call.entry.stream, GROUP, self._process.consumer, call.entry.entry_id)
                self._scripts.call(call.script, *owned, *call.arguments, pipe=pipe)

        return run_pipelined(self._process.client, queue)


def _is_suspect(entry: Entry) -> bool:
    """Whether the entry was delivered before."""
    deliveries = entry.fields.get(b"n", b"")
    return is_count(deliveries) and int(deliveries) > 1


def _open(entry: Entry) -> Header:
    """Decode an intake entry's header.

    Raises:
        MessageError: It is no intake entry, or its header cannot be read.
    """
    missing = [name.decode() for name in _FIELDS if name not in entry.fields]
    if missing:
        raise DecodeError(f"the entry lacks the fields {', '.join(missing)}")
    for name in (b"b", b"n"):
        if not is_count(entry.fields[name]):
            raise DecodeError(f"the entry's field {name.decode()} is not a number")
    header = Header.decode(entry.fields[b"h"])
    if header.job_id.encode() != entry.fields[b"j"]:
        raise DecodeError("the entry's header names another job")
    return header


def _ids(entry: Entry, header: Header) -> dict[str, str]:
    return {
        "request_id": header.request_id,
        "job_id": header.job_id,
        "entry_id": entry.entry_id,
    }


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """Return the model's tokenizer.

    Raises:
        ConfigError: Its files cannot be used.
    """
    return FakeTokenizer() if files.path is None else ModelTokenizer(files.path)


def work(process: Process) -> None:
    """Load the configured model's tokenizer and prepare documents until asked to stop."""
    files = models.for_settings(process.settings)
    served = Served(
        files.name, files.version, files.context_len, process.settings.max_document_bytes
    )
    preprocessor = Preprocessor(load_tokenizer(files), served, clock=time.monotonic)
    try:
        PreprocessWorker(process, files, preprocessor).serve()
    except BrokerUnavailable as error:
        log.get().warning("leases.left", problem=error.message)
        sys.exit(EXIT_LEFT)


if __name__ == "__main__":
    command_line("workers.preprocess_worker", __doc__).parse_args()
    sys.exit(run("preprocess", work))
