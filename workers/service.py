"""The whole service on this machine: a Redis if there is none, and the workers, supervised.

`python -m workers.service` starts what `DOCMILL_*` and its options say, and runs until SIGTERM or
SIGINT: workers finish what they hold within the grace period, Redis ends last, the status is 0. A
second signal ends everything at once. What cannot start ends the service with `EXIT_CONFIG`.

Standard output speaks to a parent program, one JSON object a line:

    {"event": "preparing", "message": …}         something slow, for a person to read
    {"event": "redis_ready", "model": …, "url": …}    no url when one was given
    {"event": "waiting", "roles": […], "elapsed_s": …}    now and then until all are ready
    {"event": "child_ready", "role": …}
    {"event": "child_exited", "role": …, "how": …, "restart_in_s": …}
    {"event": "ready"}                           once, when all of them are
    {"event": "fatal", "code": …, "message": …}
    {"event": "stopped"}

Logs go to standard error. May import everything in workers, but never torch.
"""

import argparse
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from docmill.errors import BrokerUnavailable, DocmillError
from docmill.wire import Failure
from workers import kernels, log, models, redis_server
from workers import settings as configuration
from workers.models import ModelFiles
from workers.readiness import Readiness
from workers.redis_server import RedisServer
from workers.settings import Settings
from workers.supervisor import Command, Supervisor, explained

#: The engine first: its start takes longest.
_MODULES = {
    "engine": "workers.engine_worker",
    "preprocess": "workers.preprocess_worker",
    "control": "workers.control",
}
_TICK_S = 0.1
#: Between two looks whether the model's files are found, which takes some 20 ms.
_PREPARE_TICK_S = 0.01
#: When people are told, again and again, what a start waits for.
_TELL_EVERY_S = 3.0
#: One core tokenises 2 MB/s, more than most engines answer: the other cores are the engine's.
_FOR_CHILDREN = {"DOCMILL_LOG_FORMAT": "json", "RAYON_NUM_THREADS": "1"}


def commands(num_shards: int, *, is_own_redis: bool = False) -> list[Command]:
    """Return the workers to run: one of each role in each shard."""
    arguments = {"control": ("--own-redis",)} if is_own_redis else {}
    return [
        Command(
            role if num_shards == 1 else f"{role}.{shard}",
            module,
            arguments.get(role, ()),
            variables={} if num_shards == 1 else {"DOCMILL_SHARD": str(shard)},
        )
        for shard in range(num_shards)
        for role, module in _MODULES.items()
    ]


def emit(event: str, **fields: Any) -> None:
    """Tell the parent program something; that it has gone, or a full disk, is no error here."""
    try:
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()
    except OSError:
        # the interpreter flushes once more at exit, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class StopRequests:
    """How often this process was asked to stop: SIGTERM, SIGINT, or its parent's end.

    A parent that is gone (`parent_fd` at its end) counts twice: nobody waits for the answers.
    """

    def __init__(self, parent_fd: int | None) -> None:
        self.count = 0
        self._parent_fd = parent_fd
        self._wakeup, write_end = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.count += 1

    def wait(self, timeout_s: float) -> int:
        """Sleep until the next request, at most `timeout_s`; return the count."""
        fds = [self._wakeup] if self._parent_fd is None else [self._wakeup, self._parent_fd]
        readable = select.select(fds, [], [], timeout_s)[0]
        if self._wakeup in readable:
            os.read(self._wakeup, 4096)
        if self._parent_fd in readable and not os.read(self._parent_fd, 4096):
            self._parent_fd = None
            self.count += 2
        return self.count


@contextmanager
def _redis(
    settings: Settings, directory: Path | None
) -> Iterator[tuple[Settings, RedisServer | None]]:
    """Provide a Redis: the one given, or one of our own until the block ends."""
    if settings.redis_url is not None:
        yield settings, None
        return
    with ExitStack() as stack:
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="dm-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            server = redis_server.start_embedded(directory, is_durable=False)
        else:
            server = redis_server.start_embedded(directory)
        stack.callback(server.stop)
        yield settings.model_copy(update={"redis_url": SecretStr(server.url)}), server


def prepare_model(settings: Settings, stops: StopRequests) -> ModelFiles | None:
    """Set the model up if this is its first use, saying so; None when asked to stop.

    Done once here rather than by each worker, in a thread, so that a stop is not kept waiting.

    Raises:
        ConfigError: No such model, or its directory lacks a file.
        ModelLoadError: The model cannot be set up here.
    """
    prepared: Future[ModelFiles] = Future()

    def prepare() -> None:
        try:
            files = models.for_settings(settings, _report)
            wants_kernels = settings.engine != "fake" and settings.device != "cuda"
            if wants_kernels and (said := kernels.prepare(_report)):
                _report(said)
            prepared.set_result(files)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is read
            prepared.set_exception(error)

    threading.Thread(target=prepare, name="prepare", daemon=True).start()
    while not prepared.done() and not stops.wait(_PREPARE_TICK_S):
        pass
    return prepared.result() if prepared.done() else None


def _report(line: str) -> None:
    emit("preparing", message=line)


def run(settings: Settings, stops: StopRequests, redis_directory: Path | None) -> Failure | None:
    """Run the service until it is asked to stop; return why it could not run, if so."""
    with _redis(settings, redis_directory) as (settings, server):
        readiness = Readiness(settings)
        readiness.check()
        model = prepare_model(settings, stops)
        if model is None:
            return None
        emit("redis_ready", model=model.name, **({"url": server.url} if server else {}))
        supervisor = Supervisor(
            commands(settings.shards, is_own_redis=server is not None),
            configuration.child_environment(settings, _FOR_CHILDREN),
            emit=emit,
            log=sys.stderr.buffer,
            is_console=log.is_console(settings.log_format),
        )
        supervisor.start()
        try:
            failure = _watch(supervisor, readiness, stops, server)
            if failure is not None:
                _tell(failure)  # before our Redis ends, which would look like the reason
            return failure
        finally:
            # nothing is worth waiting for after a failure, or when hurried
            grace_s = settings.grace_s if stops.count == 1 else 0.0
            supervisor.stop(grace_s, lambda timeout_s: stops.wait(timeout_s) > 1)


def _watch(
    supervisor: Supervisor, readiness: Readiness, stops: StopRequests, server: RedisServer | None
) -> Failure | None:
    began_at = tell_at = time.monotonic()
    while not stops.wait(_TICK_S):
        if server is not None and (status := server.process.poll()) is not None:
            message = (
                f"the embedded Redis ended with {explained(status)}; the last line of its log, "
                f"{server.log_path}: {server.last_words()}"
            )
            return Failure(code=BrokerUnavailable.code, message=message)
        ready_pids = readiness.ready_pids() if supervisor.has_unready else ()
        now = time.monotonic()
        failure = supervisor.tick(ready_pids, now)
        if failure is not None:
            return failure
        if not supervisor.was_announced and now - tell_at >= _TELL_EVERY_S:
            tell_at = now
            emit("waiting", roles=supervisor.unready, elapsed_s=round(now - began_at))
    return None


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workers.service",
        description="Run Redis (unless one is given) and the workers, supervised.",
        epilog="Every setting is also a variable DOCMILL_<NAME>: docs/configuration.md.",
    )
    parser.add_argument("--model", help="model directory, hub name, or smollm2-135m")
    parser.add_argument("--redis-url", help="use this Redis rather than starting one")
    parser.add_argument(
        "--redis-dir", type=Path, help="keep the started Redis' data here; without it, none is kept"
    )
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="for programs that start this: the first line of standard input is a JSON object of "
        "settings, and its end means that the program has gone",
    )
    return parser.parse_args(argv)


def _first_line(fd: int) -> bytes:
    """Read one line and no byte more, so that waiting for the end stays possible."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line or b"{}"


def main() -> int:
    """Run the service and return its exit status."""
    arguments = _arguments(sys.argv[1:])
    parent_fd = sys.stdin.fileno() if arguments.with_parent else None
    stops = StopRequests(parent_fd)
    overrides = {"model": arguments.model, "redis_url": arguments.redis_url}
    if parent_fd is not None:
        overrides |= json.loads(_first_line(parent_fd))
    try:
        settings = configuration.load(**overrides)
        log.configure(settings.log_level, settings.log_format, "service")
        failure = run(settings, stops, arguments.redis_dir)
    except DocmillError as error:
        failure = Failure(code=error.code, message=error.message)
        _tell(failure)
    if failure is not None:
        return log.EXIT_CONFIG
    emit("stopped")
    return 0


def _tell(failure: Failure) -> None:
    emit("fatal", code=failure.code, message=failure.message)


if __name__ == "__main__":
    sys.exit(main())
