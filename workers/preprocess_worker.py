"""The preprocessing worker: submitted documents in, prepared ones out.

`python -m workers.preprocess_worker`, configured by `DOCMILL_*`. Decides what is read together and
the order of the work; what becomes of a document is decided in `preprocess` and `workers.steps`.
One thread reads, prepares and writes; tokenising frees the interpreter, so that the heartbeat goes
on beside it. SIGTERM stops the reading; what was read is finished. A document that was delivered
before may be what ended its worker: it is prepared by itself, and Redis is told so, that no other
is blamed. May import preprocess and docmill.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from docmill.errors import BrokerUnavailable, DocmillError, MessageError
from docmill.keys import GROUP, TIERS
from docmill.scripts import Scripts
from docmill.wire import Failure, Spec
from preprocess.base import Refused
from preprocess.pipeline import Preprocessor
from workers import log, models, retry
from workers.lifecycle import EXIT_LEFT, HANG_LIMIT_S, wall_clock
from workers.models import ModelFiles
from workers.preparation import preprocessor_for
from workers.process import Process, command_line, run
from workers.retry import Trouble
from workers.specs import SpecStore
from workers.steps import Call, Ending, Opened, Step, Steps, open_entry
from workers.streams import Entry, Outage, StreamReader, insist, is_count, run_pipelined

_MAX_COUNT = 64
#: Aimed at in one read of a stream: half a second of tokenising, so an interactive document that
#: comes meanwhile waits no longer.
_READ_BYTES = 1_000_000
#: What scripts answer when they did what they were told.
_VERDICTS = frozenset(
    {
        *(b"READY", b"FOLLOWS", b"CACHED", b"SETTLED", b"SPLIT", b"DROPPED"),
        *(b"OK", b"BACK", b"LATER", b"DEAD"),
    }
)
#: How long Redis knows what is prepared alone: until the reaper has looked, whenever it ends.
_ALONE_S = int(HANG_LIMIT_S) + 60


class PreprocessWorker:
    """Prepares what comes in until the process is asked to stop."""

    def __init__(self, process: Process, files: ModelFiles, preprocessor: Preprocessor) -> None:
        self._process = process
        self._files = files
        self._preprocessor = preprocessor
        self._steps = Steps(process, files)
        self._scripts = Scripts(process.client, process.keys.prefix)
        self._outage = Outage(process.pause)
        self._specs = SpecStore(process.client, process.keys)
        streams = [process.keys.intake(tier) for tier in TIERS]
        self._reader = StreamReader(process.client, process.consumer, streams, outage=self._outage)
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
        opened: list[Opened] = []
        steps: list[Step] = []
        for entry in entries:
            try:
                opened.append(open_entry(entry))
            except MessageError as error:
                steps.append(self._steps.bury(entry, error))
        wanted = {(one.header.job_id, one.header.spec) for one in opened}
        specs = insist(lambda: self._specs.get(wanted), self._outage, self._process.stop.is_set)
        asked: list[tuple[Opened, Spec]] = []
        for one in opened:
            spec = specs[one.header.job_id, one.header.spec]
            if isinstance(spec, Failure):
                steps.append(self._steps.settle(one, Refused(spec)))
            else:
                asked.append((one, spec))
        self._send(steps + self._prepare(asked))

    def _prepare(self, asked: Sequence[tuple[Opened, Spec]]) -> list[Step]:
        try:
            batch = [opened.submission(spec) for opened, spec in asked]
            verdicts = self._preprocessor.prepare(batch, wall_clock())
        except Exception as error:  # noqa: BLE001 - it must cost one document, not its neighbours
            if len(asked) > 1:
                return [step for one in asked for step in self._prepare([one])]
            opened, _ = asked[0]
            trouble = retry.trouble(error)
            log.get().exception(
                "document.failed", code=trouble.code, trace=trouble.trace, **opened.ids
            )
            return [self._steps.fail(opened.entry, trouble)]
        return [
            self._steps.step(opened, verdict)
            for (opened, _), verdict in zip(asked, verdicts, strict=True)
        ]

    def _send(self, steps: Sequence[Step]) -> None:
        """Run the scripts, repeating until Redis answers: each is fenced by the entry's owner."""
        endings = [step for step in steps if isinstance(step, Ending)]
        calls = [step for step in steps if isinstance(step, Call)]
        told: list[Step] = [*endings, *calls]
        num_attempts = 0

        def attempt() -> list[Any]:
            nonlocal num_attempts
            num_attempts += 1
            return [*self._end(endings), *self._run(calls)]

        replies = insist(attempt, self._outage, self._process.stop.is_set)
        lost = [step for step, reply in zip(told, replies, strict=True) if reply == b"LOST"]
        if lost and num_attempts == 1:  # later it may be our own first attempt that took them
            log.get().warning("lease.lost", count=len(lost), entry_id=lost[0].entry.entry_id)
        failed: list[Step] = []
        for step, reply in zip(told, replies, strict=True):
            if reply != b"LOST" and reply not in _VERDICTS:
                entry_id, problem = step.entry.entry_id, str(reply)
                log.get().error("entry.failed", entry_id=entry_id, problem=problem)
                if isinstance(step, Ending) or step.script == "split":
                    trouble = Trouble(DocmillError.code, problem, is_retryable=True)
                    failed.append(self._steps.fail(step.entry, trouble))
        if failed:
            self._send(failed)

    def _end(self, endings: Sequence[Ending]) -> Iterator[bytes]:
        for first in range(0, len(endings), _MAX_COUNT):
            rows: list[str | bytes | int] = []
            for ending in endings[first : first + _MAX_COUNT]:
                entry = ending.entry
                rows += [entry.stream, entry.entry_id]
                rows += [entry.fields[name] for name in (b"i", b"j", b"b")]
                rows += [ending.header, *ending.verdict]
            told = (GROUP, self._process.consumer, self._preprocessor.take_num_seen())
            yield from self._scripts.call("prepare", *told, *rows)

    def _run(self, calls: Sequence[Call]) -> list[Any]:
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


def work(process: Process) -> None:
    """Load the configured model's tokenizer and prepare documents until asked to stop."""
    files = models.for_settings(process.settings)
    preprocessor = preprocessor_for(process.settings, files)
    try:
        PreprocessWorker(process, files, preprocessor).serve()
    except BrokerUnavailable as error:
        log.get().warning("leases.left", problem=error.message)
        sys.exit(EXIT_LEFT)


if __name__ == "__main__":
    command_line("workers.preprocess_worker", __doc__).parse_args()
    sys.exit(run("preprocess", work))
