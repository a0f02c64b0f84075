"""How the command line finds the service beside it, starts it, and hears from it.

The service is not part of the client's wheel: it lies beside this package in a checkout or an
image, and runs as a process of its own, so that the client never imports torch. It gets its
settings on standard input, where no process list shows a password, and tells on standard output
what happens; the end of its standard input tells it that we are gone. May import the standard
library only.
"""

import contextlib
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from docmill.errors import BrokerUnavailable, DocmillError, ServiceError

#: What the service imports that the client does not; all of it is in the `worker` extra.
_PACKAGES = ("structlog", "pydantic_settings", "torch", "transformers", "safetensors", "arq")

#: Where a checkout or an image has the service.
BESIDE = Path(__file__).resolve().parents[2]

Event = dict[str, Any]

_MAX_LOG_BYTES = 10 * 1024 * 1024


def find_service(beside: Path | None = None) -> Path:
    """Return the folder from which `python -m workers.service` runs.

    Raises:
        ServiceError: Only the client is installed, or packages are missing; says what to do.
    """
    beside = beside or BESIDE
    if not all((beside / name / "__init__.py").exists() for name in ("workers", "engine")):
        raise ServiceError(
            "only docmill's client is installed here: run this in a clone of the repository or in "
            "its image, or use 'docmill submit --redis-url …' with a service that runs elsewhere"
        )
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ServiceError(
            f"the service needs packages that are not installed ({', '.join(missing)}): "
            f"run {sys.executable} -m pip install '{beside}[worker,embedded,small-model]'"
        )
    return beside


def log_path(state_dir: Path) -> Path:
    """Return the file to which `docmill run` sends the log of its service."""
    return state_dir.expanduser() / "logs" / "service.log"


def open_log(state_dir: Path) -> IO[bytes]:
    """Open the log for adding to it; a large one is put aside first, in place of the last.

    Raises:
        ServiceError: It cannot be written.
    """
    path = log_path(state_dir)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")
    except OSError as error:
        raise ServiceError(
            f"{path} cannot be written: {error.strerror}; choose another --state-dir"
        ) from error


def waiting_line(event: Event) -> str:
    """Say what the start waits for, to people."""
    roles = event["roles"]
    what = ", ".join(roles)
    if any(role.partition(".")[0] == "engine" for role in roles):
        what += ", which loads the model" if len(roles) == 1 else "; the engine loads the model"
    return f"waiting for {what} ({event['elapsed_s']} s)"


def service_failure(event: Event, log: Path | None) -> DocmillError:
    """Turn the event that says that the service does not run into an error.

    `log` is the file to which it logged; None: to our standard error.
    """
    if event["event"] == "fatal" and event["code"] == BrokerUnavailable.code:
        return BrokerUnavailable(event["message"])
    if event["event"] == "fatal":
        return ServiceError(event["message"])
    where = f"its log: {log}" if log else "its log is above"
    return ServiceError(f"the service ended with status {event['status']}; {where}")


class ServiceProcess:
    """A running service. `on_event` is called from a thread of its own with each thing it says."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        on_event: Callable[[Event], None],
        log: IO[bytes] | None = None,
        redis_directory: Path | None = None,
    ) -> None:
        """Start it.

        Args:
            settings: Override what `DOCMILL_*` says; None among them is ignored.
            on_event: Gets the events that workers/service.py describes, and at last
                `{"event": "ended", "status": …}`.
            log: Where its logs go; our standard error by default.
            redis_directory: Where the Redis that it starts keeps its data; nowhere by default.

        Raises:
            ServiceError: There is no service here.
        """
        arguments = ["--with-parent"]
        if redis_directory is not None:
            arguments += ["--redis-dir", str(redis_directory.absolute())]
        self._on_event = on_event
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers.service", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=find_service(),
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone; we pass it on
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which the events tell
            self._process.stdin.write(json.dumps(dict(settings), default=str).encode() + b"\n")
            self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._on_event(json.loads(line))
        self._on_event({"event": "ended", "status": self._process.wait()})

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._process.pid

    def stop(self, patience_s: float | None = None) -> None:
        """End the service: what runs may finish for `patience_s`, then it is hurried.

        Without a limit the service's own grace period counts. A second interrupt from the user
        while this waits hurries it as well.
        """
        try:
            self._ask(patience_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._hurry()
        self._release()

    def _ask(self, patience_s: float | None) -> None:
        self._process.terminate()
        self._process.wait(patience_s)

    def _drop_lead(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _release(self) -> None:
        """Close the pipes; the events that are still in one are told first."""
        assert self._process.stdout is not None
        self._drop_lead()
        self._reader.join(1.0)
        if not self._reader.is_alive():
            self._process.stdout.close()

    def _hurry(self) -> None:
        """Take the lead away, upon which the service kills its workers; then kill it."""
        self._drop_lead()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
