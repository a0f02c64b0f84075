"""Container health check: `python -m workers.health ROLE` exits 0 when that worker serves here.

A worker serves when its own heartbeat is alive and it says that it is ready: a process that runs
but hangs, or that is still loading its model, does not. Decides nothing else. May import docmill
and workers.settings.
"""

import socket
import sys
from typing import Any

from docmill.connection import REDIS_ERRORS, connect, connection_error
from docmill.errors import ConfigError, DocmillError
from docmill.keys import Keys
from docmill.status import read_consumers
from workers import settings

# shorter than the health check's own limit, so that the reason is printed
_TIMEOUT_S = 3.0


def problem(client: Any, keys: Keys, role: str, host: str) -> str | None:
    """Return why no worker of `role` on `host` serves, or None when one does.

    Cost: two round trips.
    """
    shown = read_consumers(client.hgetall(keys.consumers))
    here = {
        name: worker
        for name, worker in shown.items()
        if worker["role"] == role and worker["host"] == host
    }
    alive = [worker for name, worker in here.items() if client.exists(keys.heartbeat(name))]
    if any(worker["state"] == "ready" for worker in alive):
        return None
    if alive:
        return f"{role} is {alive[0]['state']}"
    return f"{role} sends no heartbeat from {host}"


def main(arguments: list[str]) -> int:
    """Check one role; print what is wrong in one line."""
    if len(arguments) != 1:
        return _unhealthy("usage: python -m workers.health preprocess|engine|control")
    try:
        configured = settings.load()
        if configured.redis_url is None:
            raise ConfigError("DOCMILL_REDIS_URL: not set")
        url = configured.redis_url.get_secret_value()
        keys = Keys(configured.namespace, configured.shard)
        client = connect(url, timeout_s=_TIMEOUT_S, name="docmill-health", key=keys.prefix)
        try:
            found = problem(client, keys, arguments[0], socket.gethostname())
        except REDIS_ERRORS as error:
            raise connection_error(error, url) from error
    except DocmillError as error:
        return _unhealthy(error.message)
    return _unhealthy(found) if found else 0


def _unhealthy(reason: str) -> int:
    sys.stderr.write(f"unhealthy: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
