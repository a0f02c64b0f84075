"""One shard of a Redis Cluster, spoken to as if it were a single server.

All keys of a shard lie in one slot, so one master has them all: each new connection asks the
cluster's nodes which one that is, and everything else - pipelines, scripts, blocking reads - stays
as with a single server. When the slot moves or its master dies, connections end and the next ones
find the new master. Decides nothing about waiting. May import redis.
"""

import threading
from collections.abc import Sequence
from typing import Any

import redis
from redis.connection import Connection, ConnectionPool
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from docmill.transport import DEMOTED, REDIRECTED, Follower, TcpConnection, TlsConnection

Place = tuple[str, int]


class Nodes:
    """The nodes of a cluster as far as they are known, and who is the master of one slot.

    Args:
        seeds: The nodes to ask first.
        slot: The slot.
        connection_class: How to speak to a node.
        options: What such a connection takes, but for its host and port.
    """

    def __init__(
        self, seeds: Sequence[Place], slot: int, connection_class: type, options: dict[str, Any]
    ) -> None:
        self.slot = slot
        self._seeds = tuple(seeds)
        self._places = list(seeds)
        self._class = connection_class
        self._options = options
        self._lock = threading.Lock()

    def master(self) -> Place:
        """Ask which master has the slot now; the node that answered last is asked first.

        Raises:
            redis.RedisError: No node answers, all refuse, or no master has the slot.
        """
        with self._lock:
            places = list(self._places)
        problem: Exception | None = None
        for place in places:
            try:
                ranges = self._ask(place)
            except (AuthenticationError, NoPermissionError):
                raise
            except ResponseError as error:
                if "cluster support disabled" in str(error):
                    raise
                problem = error
            except (redis.RedisError, OSError) as error:
                problem = error
            else:
                self._learn(place, ranges)
                return _owner(ranges, self.slot, place)
            self._ask_last({place})
        raise redis.ConnectionError(f"no node of the cluster answers: {problem}") from problem

    def failed(self, master: Place) -> None:
        """Note that a master is away, or is none: whoever named it may never notice."""
        with self._lock:
            named_by = self._places[0]
        self._ask_last({named_by, master})

    def _ask_last(self, places: set[Place]) -> None:
        with self._lock:
            self._places.sort(key=lambda known: known in places)

    def _ask(self, place: Place) -> Any:
        connection = self._class(host=place[0], port=place[1], **self._options)
        try:
            connection.connect()
            connection.send_command("CLUSTER", "SLOTS")
            return connection.read_response()
        finally:
            connection.disconnect()

    def _learn(self, asked: Place, ranges: Any) -> None:
        found = [_place(node, asked) for _, _, *nodes in ranges for node in nodes]
        with self._lock:
            # the seeds stay: after all known nodes have gone, theirs are the names that may lead on
            self._places = list(dict.fromkeys((asked, *found, *self._seeds)))


def _owner(ranges: Any, slot: int, asked: Place) -> Place:
    for first, last, master, *_ in ranges:
        if first <= slot <= last:
            return _place(master, asked)
    raise redis.ConnectionError(f"no master of the cluster has slot {slot}")


def _place(node: Any, asked: Place) -> Place:
    """Return where a node is; one that does not know its own address is the one that was asked."""
    host = (node[0] or b"").decode()
    return (asked[0] if host in ("", "?") else host), int(node[1])


class _ToSlot(Follower):
    """A connection to whichever node is the slot's master when it is made."""

    moves = DEMOTED | REDIRECTED
    host: str
    port: int

    def __init__(self, *, nodes: Nodes, **options: Any) -> None:
        self._nodes = nodes
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = place = self._nodes.master()
        try:
            return super()._connect()  # type: ignore[safe-super, no-untyped-call]  # a mixin
        except (redis.RedisError, OSError):
            self._nodes.failed(place)
            raise

    def give_up(self) -> None:
        """End, and do not believe next time whoever led here."""
        self._nodes.failed((self.host, self.port))
        super().give_up()


class _TcpToSlot(_ToSlot, TcpConnection):
    """In plain text."""


class _TlsToSlot(_ToSlot, TlsConnection):
    """Encrypted."""


def cluster_pool(
    seeds: Sequence[Place], key: str, options: dict[str, Any], *, is_tls: bool
) -> ConnectionPool:
    """Return a pool of connections to the master of a key's slot.

    Args:
        seeds: Some of the cluster's nodes.
        key: Any key of the shard.
        options: What each connection takes, but for its host and port.
        is_tls: Encrypt.
    """
    to_node: type[Connection] = TlsConnection if is_tls else TcpConnection
    to_slot: type[Connection] = _TlsToSlot if is_tls else _TcpToSlot
    asking = options | {"socket_timeout": options["socket_connect_timeout"]}
    nodes = Nodes(seeds, key_slot(key.encode()), to_node, asking)
    return ConnectionPool(connection_class=to_slot, nodes=nodes, **options)
