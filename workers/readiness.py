"""Which worker processes of this machine say that they are ready.

Reads what consumers tell about themselves in Redis; decides nothing. May import docmill and
workers.settings.
"""

import socket
from typing import Any

from docmill.connection import REDIS_ERRORS, connect, connection_error
from docmill.keys import Keys
from docmill.status import read_consumers
from workers.settings import Settings

_TIMEOUT_S = 5.0


class Readiness:
    """Asks the configured Redis about the processes of this machine, in all shards."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.known_redis_url()
        self._shards = [self._shard(settings.namespace, shard) for shard in range(settings.shards)]
        self._host = socket.gethostname()

    def _shard(self, namespace: str, shard: int) -> tuple[Any, Keys]:
        keys = Keys(namespace, shard)
        client = connect(self._url, timeout_s=_TIMEOUT_S, name="docmill-service", key=keys.prefix)
        return client, keys

    def check(self) -> None:
        """Make sure that Redis answers for every shard.

        Raises:
            BrokerUnavailable: It does not; says why and what to do.
        """
        try:
            for client, keys in self._shards:
                client.exists(keys.backlog)  # with a key: a cluster's node says that it is one
        except REDIS_ERRORS as error:
            raise connection_error(error, self._url) from error

    def ready_pids(self) -> set[int]:
        """Return the processes that are ready and alive; none of a shard that does not answer.

        Cost: two round trips a shard.
        """
        found: set[int] = set()
        for client, keys in self._shards:
            try:
                found |= self._ready_pids(client, keys)
            except REDIS_ERRORS:
                continue
        return found

    def _ready_pids(self, client: Any, keys: Keys) -> set[int]:
        ready = {
            name: shown["pid"]
            for name, shown in read_consumers(client.hgetall(keys.consumers)).items()
            if shown["host"] == self._host and shown["state"] == "ready"
        }
        heartbeats = client.mget(map(keys.heartbeat, ready)) if ready else []
        return {
            pid
            for pid, heartbeat in zip(ready.values(), heartbeats, strict=True)
            if heartbeat is not None
        }
