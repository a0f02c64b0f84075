"""`docmill up`: the supervised service on this machine, until Ctrl-C.

Its Redis, unless one is given, keeps its data in the state directory, so that the next `up` goes on
where this one stopped. May import docmill.cli.service_process, docmill.cli.address
and docmill.connection.
"""

import contextlib
import os
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from docmill.cli.address import Address, file_in, is_running, published
from docmill.cli.output import say, write_json
from docmill.cli.service_process import Event, ServiceProcess, service_failure, waiting_line
from docmill.connection import REDIS_ERRORS, connect, masked
from docmill.errors import ServiceError

_HOW_TO = """\
docmill is up ({model}). Ctrl-C ends it; what waits is kept for the next time.

  Command line, on this machine:
    docmill submit papers/ --prompt "Summarize this." --wait
  Python:
    from docmill import Client

    client = Client({url!r}{namespace})
    job = client.submit(["The text of a document."], prompt="Summarize this.")
    for result in job.results():
        print(result.custom_id, result.text)
"""


def up(settings: dict[str, Any], state_dir: Path, *, as_json: bool) -> int:
    """Run the service until it is interrupted; return 0.

    Raises:
        ServiceError: It cannot start, has ended, or another one runs in this state directory.
        BrokerUnavailable: The Redis that was given cannot be reached.
    """
    events: SimpleQueue[Event] = SimpleQueue()
    state_dir = state_dir.expanduser()
    redis_directory = None
    if not settings.get("redis_url"):
        _refuse_second(state_dir)
        redis_directory = state_dir / "redis"
    say("starting the service …")
    service = ServiceProcess(settings, on_event=events.put, redis_directory=redis_directory)
    with contextlib.ExitStack() as stack:
        try:
            _watch(events, stack, settings, state_dir, as_json)
        except KeyboardInterrupt:
            say("stopping; Ctrl-C again to hurry …")
        finally:
            service.stop()
    say("stopped")
    return 0


def _refuse_second(state_dir: Path) -> None:
    address = published(state_dir)
    if address is None or not is_running(address.pid):
        return
    try:
        with connect(address.redis_url, timeout_s=1.0) as client:
            client.ping()
    except REDIS_ERRORS:
        return  # it was killed, and its process id is another's now
    raise ServiceError(
        f"docmill is already up here (pid {address.pid}, {masked(address.redis_url)}): use it, "
        "stop it, or give another --state-dir"
    )


def _watch(
    events: SimpleQueue[Event],
    stack: contextlib.ExitStack,
    settings: dict[str, Any],
    state_dir: Path,
    as_json: bool,
) -> None:
    """Tell what happens until a KeyboardInterrupt, or a failure that is raised."""
    model = url = ""
    while True:
        event = events.get()
        if as_json:
            write_json(event)
        match event["event"]:
            case "preparing":
                say(event["message"])
            case "waiting":
                say(waiting_line(event))
            case "redis_ready":
                model, url = event["model"], event.get("url") or settings["redis_url"]
                address = Address(url, settings["namespace"], os.getpid())
                address.publish(state_dir)
                stack.callback(address.withdraw, state_dir)
            case "ready" if not as_json:
                for line in how_to(model, url, settings["namespace"], state_dir).split("\n"):
                    say(line)
            case "child_exited":
                say(f"the {event['role']} process ended with {event['how']} and starts again")
            case "fatal" | "ended":
                raise service_failure(event, None)


def how_to(model: str, url: str, namespace: str, state_dir: Path) -> str:
    """Say how the service is used; a password is not shown, but where it is kept."""
    shown = "" if namespace == "default" else f", namespace={namespace!r}"
    said = _HOW_TO.format(model=model, url=masked(url), namespace=shown)
    if masked(url) != url:
        said += f"  The address with its password is redis_url in {file_in(state_dir)}\n"
    return said
