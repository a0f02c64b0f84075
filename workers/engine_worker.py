"""The engine worker: prepared documents in, answers out.

`python -m workers.engine_worker`, configured by `DOCMILL_*`. One thread reads ready streams into a
window, the main thread runs batches, one writes results, one sends heartbeats. SIGTERM stops the
reading, hands back at once what waits, lets the running batch finish within the grace period and
hands back the rest; no delivery is counted for either. While Redis is away there is nothing to wait
for: it ends soon, with a status of its own. May import engine and docmill.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from docmill.connection import REDIS_ERRORS
from docmill.errors import BrokerUnavailable, EngineError
from docmill.keys import GROUP
from docmill.scripts import Scripts
from engine.base import Engine
from workers import engines, log, models
from workers.batching import Limits
from workers.completion import Serving, Writer
from workers.feeder import Feeder, sources
from workers.leases import Lease, Window
from workers.lifecycle import EXIT_FAULT, EXIT_LEFT, vital_thread
from workers.models import ModelFiles
from workers.process import Process, command_line, run
from workers.registry import ServedModel, register
from workers.runner import Runner
from workers.streams import BLOCK_MS, Outage, insist, run_pipelined

_IDLE_S = 0.5
#: The reaper finds a dead worker's entries by what is registered: they are back that much later.
_REGISTER_EVERY_S = 5.0
#: Share of the grace period that the engine may use: leaves the rest for handing back, before a
#: supervisor's patience ends.
_ENGINE_SHARE = 0.8
#: Once asked to stop: how long Redis may be away before it is given up.
_PATIENCE_S = 2.0
#: For redeliver.lua: what is handed back without counting a delivery is never given up.
_NO_LIMIT = 2**31 - 1


class EngineWorker:
    """One engine and the threads around it, until the process is asked to stop."""

    def __init__(self, process: Process, files: ModelFiles, engine: Engine) -> None:
        settings, capacity = process.settings, engine.capacity()
        self._process = process
        self._files = files
        self._engine = engine
        self._context_len = min(files.context_len, capacity.context_len)
        self._window = Window(
            Limits(
                min(settings.max_rows, capacity.max_rows),
                min(settings.max_batch_tokens, capacity.max_batch_tokens),
                settings.max_wait_s,
            )
        )
        self._serving = Serving(engine.model_name, files.version, settings.digest())
        self._writer = Writer(
            process.client,
            process.keys.prefix,
            process.consumer,
            cache_ttl_s=settings.result_cache_ttl_s,
            cache_max_bytes=settings.result_cache_max_bytes,
            max_deliveries=settings.max_deliveries,
            release=self._window.release,
        )
        self._runner = Runner(process, engine, self._window, self._writer, self._serving)
        self._is_idle = threading.Event()
        self._is_warm = False
        self._registered_at = 0.0

    def serve(self) -> int:
        """Answer documents until the process is asked to stop; return its exit status."""
        num_buckets = insist(self._register, Outage(self._process.pause), self._process.stop.is_set)
        self._process.presence.announce(
            "ready", model=self._engine.model_name, model_version=self._files.version
        )
        feeder = vital_thread("feeder", self._feeder(num_buckets).run)
        drainer = vital_thread("drainer", lambda: self._drain(feeder))
        self._writer.start()
        for thread in (feeder, drainer, vital_thread("watcher", self._runner.watcher.run)):
            thread.start()
        while not self._process.stop.is_set():
            self._process.progress.touch()
            self._stay_registered()
            batch = self._window.next_batch(_IDLE_S)
            if batch is not None:
                self._runner.run(batch)
                self._is_warm = True
            elif not self._is_warm:
                self._warm_up()
        self._is_idle.set()
        drainer.join()
        if self._runner.is_broken:
            return EXIT_FAULT  # a new process may find the device in order
        return self._status()

    def _warm_up(self) -> None:
        """Use the first idle moment to make the first batch as fast as later ones.

        Not before it says that it is ready: documents that wait already warm it as well themselves.
        """
        self._is_warm = True
        try:
            self._engine.warm([])
        except EngineError as error:
            log.get().warning("engine.cold", problem=error.message)

    def _status(self) -> int:
        return EXIT_LEFT if self._window.num_held() else 0

    def _feeder(self, num_buckets: int) -> Feeder:
        return Feeder(
            self._process,
            sources(self._process, self._files.version, num_buckets),
            self._window,
            self._writer,
            self._serving,
            self._context_len,
        )

    def _register(self) -> int:
        """Tell what is served; return the number of buckets to read."""
        client, keys = self._process.client, self._process.keys
        bounds = self._process.settings.bucket_bounds
        model = ServedModel(
            self._engine.model_name, self._context_len, bounds, num_buckets=len(bounds) + 1
        )
        self._registered_at = time.monotonic()
        return register(client, keys, self._files.version, model)

    def _stay_registered(self) -> None:
        """Tell it again now and then: a Redis that has lost its data does not know it any more."""
        if time.monotonic() - self._registered_at < _REGISTER_EVERY_S:
            return
        try:
            self._register()
        except REDIS_ERRORS:
            return  # the reading thread logs the outage; told again later

    def _drain(self, feeder: threading.Thread) -> None:
        self._process.stop.wait()
        grace_s = self._process.settings.grace_s
        deadline = time.monotonic() + grace_s
        log.get().info("worker.draining", held=self._window.num_held(), grace_s=grace_s)
        self._process.presence.announce("draining")
        # a reader still blocked would take again what is handed back
        feeder.join(max(_ENGINE_SHARE * grace_s, 2 * BLOCK_MS / 1000))
        patience_s = min(_PATIENCE_S, grace_s) if self._window.num_held() else 0.0
        is_heard = self._hand_back(self._window.take_waiting(), patience_s)
        if is_heard:  # else no result could be told
            engine_s = deadline - (1 - _ENGINE_SHARE) * grace_s - time.monotonic()
            self._is_idle.wait(max(0.0, engine_s))
        has_finished = self._is_idle.is_set()
        left_s = min(_PATIENCE_S, deadline - time.monotonic()) if is_heard else 0.0
        self._writer.close(left_s)
        self._hand_back(self._window.held(), left_s)
        if not has_finished:  # the engine cannot be interrupted, and nobody waits for it any more
            self._process.presence.leave()
            log.get().info("worker.stopped", consumer=self._process.consumer)
            os._exit(self._status())

    def _hand_back(self, leases: Sequence[Lease], patience_s: float) -> bool:
        """Let others have these entries now, without counting a delivery.

        Redis is asked even when there is nothing to hand back; False when it does not answer within
        `patience_s`.
        """
        scripts = Scripts(self._process.client, self._process.keys.prefix)
        give_up_at = time.monotonic() + patience_s

        def queue(pipe: Any) -> None:
            pipe.ping()
            for lease in leases:
                owned = (lease.stream, GROUP, self._process.consumer, lease.entry_id)
                untold = (0, _NO_LIMIT, 0, "", b"", "", "", "", "")
                scripts.call("redeliver", *owned, *untold, pipe=pipe)

        try:
            insist(
                lambda: run_pipelined(self._process.client, queue),
                Outage(),
                lambda: time.monotonic() > give_up_at,
            )
        except BrokerUnavailable as error:
            log.get().warning("leases.left", count=len(leases), problem=str(error))
            return False
        self._window.release((lease.stream, lease.entry_id) for lease in leases)
        if leases:
            log.get().info("leases.handed_back", count=len(leases))
        return True


def work(process: Process, create: engines.Factory = engines.create) -> None:
    """Load the configured model and answer documents until the process is asked to stop."""
    loaded = threading.Event()
    vital_thread("loading", lambda: _leave_while_loading(process, loaded)).start()
    files = models.for_settings(process.settings)
    engine = create(process.settings, files)
    loaded.set()
    log.get().info("model.loaded", model=engine.model_name, version=files.version)
    status = EngineWorker(process, files, engine).serve()
    engine.close()
    if status:
        sys.exit(status)


def _leave_while_loading(process: Process, loaded: threading.Event) -> None:
    """End the process if it is asked to stop while it loads: nothing is held yet."""
    process.stop.wait()
    if not loaded.is_set():
        process.presence.leave()
        os._exit(0)


if __name__ == "__main__":
    command_line("workers.engine_worker", __doc__).parse_args()
    # the threads hand each other work in a fraction of the default's 5 ms
    sys.setswitchinterval(0.0005)
    sys.exit(run("engine", work))
