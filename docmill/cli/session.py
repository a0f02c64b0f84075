"""One run of the service: documents go in from one thread, results come out in another.

The main thread only waits on a queue, so that an interrupt, a dead service and a result are all
noticed at once. May import everything in docmill.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any

from docmill.cli.input import Work, documents
from docmill.cli.output import say, write_record
from docmill.cli.resume import OutputFile
from docmill.cli.service_process import (
    Event,
    ServiceProcess,
    log_path,
    open_log,
    service_failure,
    waiting_line,
)
from docmill.cli.summary import Tally
from docmill.client import Client, new_job_id
from docmill.errors import DocmillError
from docmill.job import Job
from docmill.parts import Parts, parts_of
from docmill.progress import Reporter, show_progress

#: Together under the 5 s within which an interrupt has to end everything.
_STOP_PATIENCE_S = 2.0
_CANCEL_PATIENCE_S = 0.5
#: Results held for writing: enough to keep reading ahead, little to lose.
_QUEUE_SIZE = 1024
_TICK_S = 0.5
#: Seconds between two looks at documents that are answered in parts.
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    work: Work
    settings: dict[str, Any]
    state_dir: Path
    job_id: str | None = None
    tenant: str = ""
    as_json: bool = False
    is_debug: bool = False

    @property
    def output(self) -> Path | None:
        """Where results go; None is standard output."""
        return self.work.output

    @property
    def shown_output(self) -> str:
        """The output's name for people."""
        return "standard output" if self.output is None else str(self.output)


@dataclass(slots=True)
class Outcome:
    """How a run went; kept outside of the run, so that an interrupt can still tell."""

    total: int
    skipped: int = 0
    tally: Tally = field(default_factory=Tally)


def tell_mixture(output: OutputFile, model: str | None) -> None:
    """Tell a person, once, that an output holds answers of another model than this."""
    if said := output.mixture(model):
        say(said)


class Run:
    """One run of the service over the documents that have no answer yet."""

    def __init__(
        self,
        request: Request,
        answered: Collection[str],
        output: OutputFile | None,
        outcome: Outcome,
    ) -> None:
        self._request = request
        self._answered = answered
        self._output = output
        self._outcome = outcome
        self._queue: Queue[tuple[str, Any]] = Queue(_QUEUE_SIZE)
        self._is_over = threading.Event()
        self._job: Job | None = None
        self._reporter: Reporter | None = None
        self._parts = Parts()
        self._began_at = time.monotonic()

    def run(self) -> None:
        """Start the service, answer everything, end the service.

        Raises:
            DocmillError: What kept the run from going on.
            KeyboardInterrupt: The user interrupted it; the service has ended.
        """
        with ExitStack() as stack:
            log = None
            if not self._request.is_debug:
                log = stack.enter_context(open_log(self._request.state_dir))
            say("starting the service …")
            service = ServiceProcess(
                self._request.settings, on_event=lambda event: self._put("service", event), log=log
            )
            try:
                with ExitStack() as shown:
                    self._loop(shown)
            except BaseException:
                self._stop_listening()
                self._give_up_job()
                service.stop(_STOP_PATIENCE_S)
                raise
            self._stop_listening()
            service.stop()

    def _stop_listening(self) -> None:
        self._is_over.set()
        # a Redis that vanishes from under the threads is our own doing from now on
        logging.getLogger("docmill").setLevel(logging.CRITICAL)

    def _loop(self, shown: ExitStack) -> None:
        while True:
            try:
                kind, value = self._queue.get(timeout=_TICK_S)
            except Empty:
                self._tell_progress()
                continue
            if kind == "result":
                self._take(value)
            elif kind == "parts":
                self._parts = value
                self._tell_progress()
            elif kind == "service":
                self._hear(value, shown)
            elif kind == "error":
                raise value
            else:
                return

    def _take(self, result: Any) -> None:
        if self._output is not None:
            self._output.write(result)
        else:
            write_record(result.to_json())
        self._outcome.tally.add(result)
        self._tell_progress()

    def _tell_progress(self) -> None:
        if self._reporter is None:
            return
        tally = self._outcome.tally
        total = self._outcome.total - self._outcome.skipped
        self._reporter.update(
            tally.done,
            total,
            num_tokens=tally.num_tokens,
            num_failed=tally.failed,
            parts=str(self._parts),
        )

    def _hear(self, event: Event, shown: ExitStack) -> None:
        name = event["event"]
        if name == "preparing":
            say(event["message"])
        elif name == "waiting":
            say(waiting_line(event))
        elif name == "redis_ready":
            if self._output:
                tell_mixture(self._output, event["model"])
            self._start_threads(event)
        elif name == "ready":
            say(f"ready after {time.monotonic() - self._began_at:.1f} s")
            self._reporter = shown.enter_context(show_progress())
            self._tell_progress()
        elif name == "child_exited":
            say(
                f"the {event['role']} process ended with {event['how']} and starts again; "
                f"its log: {log_path(self._request.state_dir)}"
            )
        elif name in ("fatal", "ended"):
            is_shown = self._request.is_debug
            raise service_failure(event, None if is_shown else log_path(self._request.state_dir))

    def _start_threads(self, event: Event) -> None:
        settings = self._request.settings
        url = event.get("url") or settings["redis_url"]
        client = Client(url, settings["namespace"], tenant=self._request.tenant)
        options = {**self._request.work.options, "model": event["model"]}
        if not settings.get("model"):
            del options["model"]  # lines that name another model are refused, not misled
        threading.Thread(target=self._submit, args=(client, options), daemon=True).start()

    def _submit(self, client: Client, options: dict[str, Any]) -> None:
        request = self._request
        waiting = (
            item
            for item in documents(request.work, extract=self._is_waiting)
            if self._is_waiting(item.custom_id)
        )
        try:
            client.submit(
                waiting,
                job_id=request.job_id or new_job_id(datetime.now(UTC)),
                on_open=self._follow,
                **options,
                **request.work.terms,
            )
        except Exception as error:  # noqa: BLE001 - the main thread must not wait for ever
            self._put("error", error)

    def _is_waiting(self, custom_id: str) -> bool:
        return custom_id not in self._answered

    def _follow(self, job: Job) -> None:
        self._job = job
        threading.Thread(target=self._receive, args=(job,), daemon=True).start()
        threading.Thread(target=self._watch_parts, args=(job,), daemon=True).start()

    def _watch_parts(self, job: Job) -> None:
        parts = Parts()
        with contextlib.suppress(DocmillError):  # who receives tells what is the matter
            while not self._is_over.wait(_LOOK_EVERY_S):
                before, parts = parts, parts_of(job._link, job.id)
                if parts != before:
                    self._put("parts", parts)

    def _receive(self, job: Job) -> None:
        try:
            for result in job.results():
                if self._is_waiting(result.custom_id):
                    self._put("result", result)
            self._put("done", None)
        except Exception as error:  # noqa: BLE001 - the main thread must not wait for ever
            self._put("error", error)

    def _put(self, kind: str, value: Any) -> None:
        """Hand something to the main thread; dropped once that has stopped listening."""
        while not self._is_over.is_set():
            try:
                self._queue.put((kind, value), timeout=_TICK_S)
            except Full:
                continue
            return

    def _give_up_job(self) -> None:
        """Take back what waits on a Redis that outlives this run; one of our own just ends.

        A job that the user named stays, to be come back to: a cancelled one takes nothing more.
        """
        request = self._request
        if self._job is None or request.job_id or not request.settings.get("redis_url"):
            return
        thread = threading.Thread(target=_cancel, args=(self._job,), daemon=True)
        thread.start()
        thread.join(_CANCEL_PATIENCE_S)


def _cancel(job: Job) -> None:
    try:
        job.cancel()
    except DocmillError:
        return  # Redis is away: the job stays, and a later run answers from its results
