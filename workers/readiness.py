"""Which worker processes of this machine say that they are ready.

Reads what consumers tell about themselves in Redis; decides nothing. May import docmill and
workers.settings.
"""

import json
import socket
from typing import Any

from docmill.connection import REDIS_ERRORS, connect, connection_error
from docmill.errors import ConfigError
from docmill.keys import Keys
from workers.settings import Settings

_TIMEOUT_S = 5.0


class Readiness:
    """Asks the configured Redis about the processes of this machine."""

    def __init__(self, settings: Settings) -> None:
        if settings.redis_url is None:
            raise ConfigError("DOCMILL_REDIS_URL: not set")
        self._url = settings.redis_url.get_secret_value()
        self._client: Any = connect(self._url, timeout_s=_TIMEOUT_S, name="docmill-service")
        self._keys = Keys(settings.namespace)
        self._host = socket.gethostname()

    def check(self) -> None:
        """Make sure that Redis answers.

        Raises:
            BrokerUnavailable: It does not; says why and what to do.
        """
        try:
            self._client.ping()
        except REDIS_ERRORS as error:
            raise connection_error(error, self._url) from error

    def ready_pids(self) -> set[int]:
        """Return the processes that are ready and alive; none while Redis does not answer.

        Cost: two round trips.
        """
        try:
            said = self._client.hgetall(self._keys.consumers)
            names = [name for name, value in said.items() if self._is_ready(value)]
            keys = [self._keys.heartbeat(name.decode()) for name in names]
            heartbeats = self._client.mget(keys) if keys else []
        except REDIS_ERRORS:
            return set()
        return {
            json.loads(said[name])["pid"]
            for name, heartbeat in zip(names, heartbeats, strict=True)
            if heartbeat is not None
        }

    def _is_ready(self, value: bytes) -> bool:
        shown = json.loads(value)
        return bool(shown["host"] == self._host and shown["state"] == "ready")
