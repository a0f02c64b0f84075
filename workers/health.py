"""Container health check: `python -m workers.health ROLE` exits 0 when that worker serves here.

A worker serves when its own heartbeat is alive and it says that it is ready: a process that runs
but hangs, or that is still loading its model, does not. Decides nothing else. May import docmill
and workers.settings.
"""

import argparse
import socket
import sys
from typing import Any

from docmill.connection import REDIS_ERRORS, connect, connection_error
from docmill.errors import DocmillError
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


def _command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workers.health",
        description="Container health check: does this worker serve here?",
        epilog="Configured by the variables DOCMILL_<NAME> that the worker has. Exit status: 0 it "
        "serves; 1 it does not, one line says why; 2 wrong arguments.",
    )
    parser.add_argument("role", choices=("preprocess", "engine", "control"))
    return parser


def main(arguments: list[str]) -> int:
    """Check one role; print what is wrong in one line."""
    role = _command_line().parse_args(arguments).role
    try:
        configured = settings.load()
        url = configured.known_redis_url()
        keys = Keys(configured.namespace, configured.shard)
        client = connect(url, timeout_s=_TIMEOUT_S, name="docmill-health", key=keys.prefix)
        try:
            found = problem(client, keys, role, socket.gethostname())
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
