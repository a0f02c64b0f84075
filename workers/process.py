"""What every worker process does around its work: configure, connect, show itself, exit.

Decides the exit status: 0 when asked to stop, `log.EXIT_CONFIG` when it can never start like this.
Any other exception ends the process with its traceback, for the supervisor to start it again. May
import docmill and the other shared modules in workers.
"""

import argparse
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from docmill.connection import REDIS_ERRORS, connection_error, is_passing
from docmill.errors import BrokerUnavailable, ConfigError, DocmillError
from docmill.keys import Keys
from workers import garbage, log
from workers import settings as configuration
from workers.lifecycle import Presence, Progress, consumer_name, stop_on_signals
from workers.settings import Settings
from workers.streams import Outage, connect, insist


@dataclass(frozen=True, slots=True)
class Process:
    """What the work is given. `stop` is set when the process is asked to end."""

    settings: Settings
    client: Any
    keys: Keys
    consumer: str
    stop: threading.Event
    progress: Progress
    presence: Presence

    def pause(self, delay_s: float) -> None:
        """Wait while Redis is away, unless the process is to stop; that is no hang."""
        self.progress.touch()
        self.stop.wait(delay_s)


_EPILOG = """\
Configured by variables DOCMILL_<NAME> alone (docs/configuration.md), at least DOCMILL_REDIS_URL;
`docmill up` starts all processes, and a Redis. SIGTERM ends it in order.

exit status:
  0    it was asked to stop
  2    it does not know an argument
  70   a fault inside, or its work hung: start it again
  75   it was asked to stop, but could not tell Redis so
  78   it can never start with this configuration: its last line says why
"""


def command_line(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return the command line of a process: it takes no arguments, and can describe itself.

    Args:
        module: What is run.
        about: Its docstring, of which the first line is shown.
    """
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=(about or "").partition("\n")[0],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run(role: str, work: Callable[[Process], None]) -> int:
    """Run `work` as a worker of this role until it returns, and return the exit status.

    The heartbeat is up, in state `loading`, before `work` is called and until it has returned.
    """
    garbage.resume()
    stop = stop_on_signals()
    try:
        settings = configuration.load()
    except ConfigError as error:
        log.configure("info", "auto", role)
        log.report_failure(error.code, error.message)
        return log.EXIT_CONFIG
    shown_role = role if settings.shards == 1 else f"{role}.{settings.shard}"
    log.configure(settings.log_level, settings.log_format, shown_role)
    try:
        _live(role, settings, stop, work)
    except DocmillError as error:
        if stop.is_set() and isinstance(error, BrokerUnavailable):
            return 0
        log.report_failure(error.code, error.message)
        return log.EXIT_CONFIG
    return 0


def _live(
    role: str, settings: Settings, stop: threading.Event, work: Callable[[Process], None]
) -> None:
    client, keys = connect(settings, role), Keys(settings.namespace, settings.shard)
    _wait_for_redis(settings, client, keys, stop)
    consumer, progress = consumer_name(), Progress()
    presence = Presence(
        client, keys, consumer, role=role, ttl_s=settings.heartbeat_ttl_s, progress=progress
    )
    presence.enter(stop)
    log.get().info("worker.started", consumer=consumer)
    try:
        work(Process(settings, client, keys, consumer, stop, progress, presence))
    finally:
        presence.leave()
    log.get().info("worker.stopped", consumer=consumer)


def _wait_for_redis(settings: Settings, client: Any, keys: Keys, stop: threading.Event) -> None:
    """Wait while Redis is only away; a wrong password or a refused command never gets better."""

    def ask() -> Any:
        return client.exists(keys.backlog)  # with a key: a cluster's node says that it is one

    try:
        ask()
    except REDIS_ERRORS as error:
        if not is_passing(error):
            raise connection_error(error, settings.known_redis_url()) from error
        insist(ask, Outage(stop.wait), stop.is_set)
