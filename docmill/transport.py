"""One connection to Redis: how it speaks, and when it must not be used any more.

Adds to the driver's connections what docmill needs of all of them: a reply that says that somebody
else is the master of these keys ends the connection, so that the next attempt looks for the master
anew; a TLS handshake is given no longer than the connecting itself. Decides nothing about where to
connect. May import redis.
"""

from collections.abc import Callable
from typing import Any

import redis
from redis.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

#: Only some versions of the driver have classes for these replies, and those cut the code off.
_CODES = (
    (ReadOnlyError, "READONLY"),
    (MovedError, "MOVED"),
    (AskError, "ASK"),
    (TryAgainError, "TRYAGAIN"),
    (MasterDownError, "MASTERDOWN"),
    (ClusterDownError, "CLUSTERDOWN"),
)
#: The server was demoted in a failover, or is about to be: its replicas have left it.
DEMOTED = frozenset({"READONLY", "MASTERDOWN", "NOREPLICAS"})
#: The slot is, or is about to be, another master's; only a cluster's nodes say so.
REDIRECTED = frozenset({"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"})


class MasterMoved(redis.ConnectionError):
    """Another server is or will be the master of these keys; the connection was given up."""


def code_of(error: ResponseError) -> str:
    """Return the first word of an error reply, as Redis sent it."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return str(error).partition(" ")[0]


def text_of(error: ResponseError) -> str:
    """Return an error reply as Redis sent it."""
    code, text = code_of(error), str(error)
    return text if text.startswith(code) else f"{code} {text}"


class Packer:
    """Writes commands; hiredis' own takes some 12 us for 8 KB, of which a join takes a third."""

    def pack(self, *args: Any) -> list[bytes]:
        """Return the command's bytes in the Redis protocol."""
        words = [*args[0].encode().split(), *args[1:]] if isinstance(args[0], str) else args
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
        return [b"".join(parts)]


class Follower(AbstractConnection):
    """A connection that ends when its server is not the master any more.

    As an error of the connection, not of one command: in a pipeline the replies that follow are
    not waited for, and whoever has to carry on does what is done after any loss.

    Attributes:
        moves: Codes of the replies that say so.

    Args:
        drop_idle: Returns what ends the other connections to the same server, those not in use.
        options: What the driver's connection takes.
    """

    moves = DEMOTED

    def __init__(self, *, drop_idle: Callable[[], Any] = lambda: None, **options: Any) -> None:
        self._drop_idle = drop_idle
        super().__init__(**options)

    def read_response(
        self, disable_decoding: bool = False, *, disconnect_on_error: bool = True, **options: Any
    ) -> Any:
        """Return a reply; raises `MasterMoved` in place of one that says so."""
        try:
            # always given on: left out, a sentinel's connection keeps a reply that came too late
            return super().read_response(  # type: ignore[no-untyped-call]  # redis-py: untyped
                disable_decoding, disconnect_on_error=disconnect_on_error, **options
            )
        except ResponseError as error:
            if code_of(error) not in self.moves:
                raise
            self.give_up()
            raise MasterMoved(text_of(error)) from error

    def give_up(self) -> None:
        """End this connection, and those to the same server that wait for use."""
        self.disconnect()  # type: ignore[no-untyped-call]  # redis-py: untyped
        if drop := self._drop_idle():
            drop(inuse_connections=False)


class _BriefHandshake(SSLConnection):
    """A TLS connection that does not wait long for a server that speaks no TLS."""

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        sock.settimeout(self.socket_connect_timeout)
        try:
            wrapped = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]  # redis-py: untyped
        except TimeoutError as error:
            raise redis.TimeoutError(
                f"no TLS handshake within {self.socket_connect_timeout:g} s; for a port without "
                "TLS write redis:// in place of rediss://"
            ) from error
        wrapped.settimeout(self.socket_timeout)
        return wrapped


class TcpConnection(Follower, Connection):
    """To a host."""


class TlsConnection(Follower, _BriefHandshake):
    """To a host, encrypted."""


class UnixConnection(Follower, UnixDomainSocketConnection):
    """To a socket of this machine."""


class SentinelConnection(Follower, SentinelManagedConnection):  # type: ignore[misc]  # untyped base
    """To the master that the sentinels name."""


class SentinelTlsConnection(  # type: ignore[misc]  # untyped base
    Follower, SentinelManagedSSLConnection, _BriefHandshake
):
    """To the master that the sentinels name, encrypted."""
