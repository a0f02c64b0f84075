"""Where a service that `docmill up` runs can be reached: one small file in the state directory.

`<state dir>/service.json` holds `{"redis_url": …, "namespace": …, "pid": …}`, readable by its owner
alone. It is written when the service's Redis answers and removed when the service ends. May import
docmill.errors.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from docmill.errors import ConfigError

#: The namespace where none is named and no service has published one.
DEFAULT_NAMESPACE = "default"

_NAME = "service.json"


@dataclass(frozen=True, slots=True)
class Address:
    """A running service: its Redis, its namespace, and the process that runs it."""

    redis_url: str
    namespace: str
    pid: int

    def publish(self, state_dir: Path) -> None:
        """Let commands on this machine find the service."""
        state_dir.mkdir(parents=True, exist_ok=True)
        temporary = state_dir / f".{_NAME}-{self.pid}"
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(file_in(state_dir))

    def withdraw(self, state_dir: Path) -> None:
        """Take the address back, unless another service has put its own there."""
        if published(state_dir) == self:
            file_in(state_dir).unlink(missing_ok=True)


def file_in(state_dir: Path) -> Path:
    """Return the file that holds the address of the service of a state directory."""
    return state_dir / _NAME


def published(state_dir: Path) -> Address | None:
    """Return the address in `state_dir`, if there is one."""
    try:
        return Address(**json.loads(file_in(state_dir).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def find(redis_url: str | None, namespace: str | None, state_dir: Path) -> tuple[str, str]:
    """Return the Redis URL and namespace to use: each as given, or of the service that runs here.

    Raises:
        ConfigError: Neither; says what to do.
    """
    if redis_url:
        return redis_url, namespace or DEFAULT_NAMESPACE
    address = published(state_dir)
    if address is None:
        raise ConfigError(
            "no service is known here: start one with 'docmill up', or name one with --redis-url "
            "or DOCMILL_REDIS_URL"
        )
    if not is_running(address.pid):
        raise ConfigError(
            "the service that 'docmill up' started has ended: start it again (it goes on where it "
            "stopped), or name another with --redis-url or DOCMILL_REDIS_URL"
        )
    return address.redis_url, namespace or address.namespace


def is_running(pid: int) -> bool:
    """Tell whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
