"""What the control process does again and again, each step for itself.

Decides what is due every second and every minute. A step that fails keeps no other from its work,
and is logged once when it begins to fail and once when it works again. Every step may be done by
any number of processes at once, or stop in the middle: each is atomic in Redis, or fenced. Knows
nothing of arq. May import docmill and the shared modules in workers.
"""

import threading
from collections.abc import Callable, Iterator, Sequence

from docmill.connection import REDIS_ERRORS
from docmill.keys import GROUP
from docmill.scripts import ScriptName, Scripts
from docmill.wire import Body, Failure
from workers import log
from workers.cautions import warn_of_dropped_shards
from workers.process import Process
from workers.reaper import confirmation_s, reap, streams
from workers.streams import is_outage
from workers.tasks import Tasks

#: Entries moved by one call: a few milliseconds of Redis' time.
_MOVED_AT_ONCE = 500
#: Calls of one step in one round; what is left waits a second.
_MOST_CALLS = 20
#: Waiting entries looked through for passed deadlines in a minute, some 10 us of Redis' time each,
#: and by one call.
_LOOKS = 10_000
_LOOKS_AT_ONCE = 100
#: Of `maxmemory`: above, stored answers make room.
_FULL_SHARE = 0.95
_LATE = Failure(code="expired", message="the deadline passed while the document waited")


class Step:
    """One thing to do in a round. `work` logs what it changed, and nothing if there was nothing."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self._work = work
        self._lock = threading.Lock()
        self._problem = ""

    def take(self) -> None:
        """Do it, unless the last round is still at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._work()
        except REDIS_ERRORS as error:
            if not is_outage(error):  # that is logged once for all, by whoever waits for its end
                self._note(type(error).__name__, str(error), is_ours=False)
        except Exception as error:  # noqa: BLE001 - the other steps have to go on
            self._note(type(error).__name__, str(error), is_ours=True)
        else:
            self._note("", "", is_ours=False)
        finally:
            self._lock.release()

    def _note(self, kind: str, problem: str, *, is_ours: bool) -> None:
        if kind == self._problem:
            return
        self._problem = kind
        if not kind:
            log.get().info("step.recovered", step=self.name)
        elif is_ours:
            log.get().exception("step.failed", step=self.name)
        else:
            log.get().warning("step.failed", step=self.name, problem=f"{kind}: {problem}")


class Rounds:
    """The regular work on one shard.

    Args:
        process: The process' surroundings.
        tasks: The shard's tasks.
    """

    #: The tasks that the last look found to be worked on.
    waiting_tasks: Sequence[str] = ()

    def __init__(self, process: Process, tasks: Tasks) -> None:
        self._tasks = tasks
        self._process = process
        self._client = process.client
        self._keys = process.keys
        self._scripts = Scripts(process.client, process.keys.prefix)
        self._looking: Iterator[tuple[int, int]] = iter(())
        self._secondly = (
            Step("limits", self._keep_limits),
            Step("reaping", self._reap),
            Step("retries", lambda: self._move("due", "entries.retried")),
            Step("parked", lambda: self._move("unpark", "entries.unparked")),
            Step("answers", self._trim_answers),
            Step("memory", self._make_room),
            Step("asked", self._look_for_tasks),
        )
        self._minutely = (
            Step("abandoned_jobs", self._seal_abandoned),
            Step("dead_letters", self._trim_dead),
            Step("deadlines", self._expire),
            Step("tasks", self._tasks.forget_ended),
        )

    def every_second(self) -> None:
        """Do what cannot wait."""
        self._take(self._secondly)

    def every_minute(self) -> None:
        """Do what can wait."""
        self._take(self._minutely)

    def _take(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if not self._process.stop.is_set():
                step.take()

    def set_limits(self) -> None:
        """Write the limits to where the scripts look, and the number of shards to where clients do.

        The limits come last: as long as they are there, nothing has been lost.
        """
        settings = self._process.settings
        if settings.shard == 0:
            warn_of_dropped_shards(self._client, settings)
            self._client.set(self._keys.shards, settings.shards)
        limits = {"max_docs": settings.backlog_max_docs, "max_bytes": settings.backlog_max_bytes}
        self._client.hset(self._keys.backlog, mapping=limits)

    def _keep_limits(self) -> None:
        if not self._client.hexists(self._keys.backlog, "max_docs"):
            self.set_limits()  # Redis has lost its data since

    def _reap(self) -> None:
        settings = self._process.settings
        report = reap(
            self._client,
            self._keys,
            confirm_s=confirmation_s(settings.heartbeat_ttl_s),
            max_deliveries=settings.max_deliveries,
        )
        if report.left:
            log.get().debug("consumers.forgotten", consumers=report.left)
        if not report.lost:
            return
        note = log.get().warning if report.handed_back or report.dead else log.get().info
        note(
            "consumers.reaped",
            consumers=report.lost,
            handed_back=report.handed_back,
            dead=report.dead,
        )

    def _move(self, script: ScriptName, event: str, *told: int) -> None:
        total = 0
        for _ in range(_MOST_CALLS):
            count = int(self._scripts.call(script, *told, _MOVED_AT_ONCE))
            total += count
            if count < _MOVED_AT_ONCE:
                break
        if total:
            log.get().info(event, count=total)

    def _look_for_tasks(self) -> None:
        self.waiting_tasks = self._tasks.waiting()

    def _seal_abandoned(self) -> None:
        silence_s = self._process.settings.producer_silence_s
        count = int(self._scripts.call("abandoned", silence_s, _MOVED_AT_ONCE))
        if count:
            log.get().warning("jobs.sealed", jobs=count, silence_s=silence_s)

    def _trim_dead(self) -> None:
        """Drop dead letters by their age; exactly, which takes 8 ms for 100,000 of them."""
        now_s, _ = self._client.time()  # ids are moments of Redis' clock
        oldest_kept_ms = int(now_s - self._process.settings.dead_letter_ttl_s) * 1000
        count = self._client.xtrim(self._keys.dead, minid=oldest_kept_ms, approximate=False)
        if count:
            log.get().info("dead_letters.trimmed", dead_letters=count)

    def _make_room(self) -> None:
        """Forget half of the stored answers while Redis is nearly full: documents go first."""
        memory = self._client.info("memory")
        if memory["used_memory"] <= _FULL_SHARE * (memory.get("maxmemory") or float("inf")):
            return
        held_bytes = int(self._client.hget(self._keys.sharing, "answer_bytes") or 0)
        if held_bytes:
            ttl_s = self._process.settings.result_cache_ttl_s
            self._move("trim_answers", "answers.forgotten", ttl_s, held_bytes // 2)

    def _trim_answers(self) -> None:
        """Forget stored answers that nobody asked for in their lifetime, or that are too many."""
        settings = self._process.settings
        kept = (settings.result_cache_ttl_s, settings.result_cache_max_bytes)
        self._move("trim_answers", "answers.forgotten", *kept)

    def _expire(self) -> None:
        """Look through some of what waits; the next round goes on where this one stopped."""
        num_seen, num_ended, is_new = 0, 0, False
        while num_seen < _LOOKS:
            page = next(self._looking, None)
            if page is not None:
                num_seen, num_ended = num_seen + page[0], num_ended + page[1]
            elif is_new:
                break  # through all of it
            else:
                self._looking, is_new = self._look(), True
        if num_ended:
            log.get().info("documents.expired", documents=num_ended)

    def _look(self) -> Iterator[tuple[int, int]]:
        """Look through everything that waits once; yield entries seen and ended, page by page."""
        body = Body(outcome="expired", error=_LATE).encode()
        paused = sorted(self._client.smembers(self._keys.parked_jobs))
        parked = [self._keys.parked(job.decode(errors="replace")) for job in paused]
        for stream in (*streams(self._client, self._keys), *parked):
            at = b"0"
            while at:
                ended, at, seen = self._scripts.call(
                    "expire", stream, GROUP, at, _LOOKS_AT_ONCE, body
                )
                yield seen, ended
