"""How docmill talks to Redis: one way to connect, one wording for what goes wrong.

Decides every socket parameter, because the defaults of redis-py 5 and 8 differ, and turns the
driver's exceptions into one-line errors that name the place (never the password) and the remedy.
Does not decide what is retried: the driver never retries here, since a command whose reply was lost
may have been carried out. May import redis.
"""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, parse_url
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from docmill.errors import BrokerUnavailable, ConfigError

#: What a caller of Redis has to catch.
REDIS_ERRORS: tuple[type[Exception], ...] = (RedisError, OSError)

#: Seconds without a byte from Redis after which a connection counts as broken.
DEFAULT_TIMEOUT_S = 30.0

_CONNECT_TIMEOUT_S = 5.0
_HEALTH_CHECK_S = 30
#: Not for a URL to change: everything above reads replies of this shape.
_FIXED: dict[str, Any] = {"protocol": 2, "decode_responses": False}
_FORMS = (
    "use redis://[user:password@]host:port/db, rediss://… (TLS), unix://[user:password@]/path?db=0 "
    "or redis+sentinel://[user:password@]host:port,host:port/service/db"
)
_WAITING_HELPS = ("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED")


def connect(
    url: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, block_s: float = 0.0, name: str = "docmill"
) -> "redis.Redis":
    """Return a client for the Redis at `url`; nothing is sent before its first command.

    The client is thread-safe, answers in bytes and never retries by itself. Options may follow as
    the URL's query, for instance `?ssl_ca_certs=/path/ca.pem`; the sentinels' own credentials are
    `?sentinel_username=…&sentinel_password=…`.

    Args:
        url: redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://.
        timeout_s: Silence after which a connection counts as broken.
        block_s: The longest BLOCK that will be asked for; it is added to the silence allowed.
        name: Shown by CLIENT LIST.

    Raises:
        ConfigError: The URL cannot be used.
    """
    settings: dict[str, Any] = {
        "socket_timeout": timeout_s + block_s,
        "socket_connect_timeout": min(_CONNECT_TIMEOUT_S, timeout_s),
        "health_check_interval": _HEALTH_CHECK_S,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "encoding": "utf-8",
        "encoding_errors": "strict",
        "client_name": name,
    }
    try:
        is_sentinel = urlsplit(url).scheme.endswith("+sentinel")
        client = (_connect_by_sentinel if is_sentinel else _connect_directly)(url, settings)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # checks the options; sends nothing
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"the Redis URL {masked(url)!r} cannot be used ({error}): {_FORMS}"
        ) from error
    return client


class _Packer:
    """Writes commands; hiredis' own takes some 12 us for 8 KB, of which a join takes a third."""

    def pack(self, *args: Any) -> list[bytes]:
        """Return the command's bytes in the Redis protocol."""
        words = [*args[0].encode().split(), *args[1:]] if isinstance(args[0], str) else args
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
        return [b"".join(parts)]


def _connect_directly(url: str, settings: dict[str, Any]) -> "redis.Redis":
    options = parse_url(url)  # type: ignore[no-untyped-call]
    more = _transport(url) | {"socket_read_size": 65536, "command_packer": _Packer()}
    return redis.Redis.from_pool(ConnectionPool(**settings | more | dict(options) | _FIXED))


def _transport(url: str) -> dict[str, Any]:
    """Return the parameters that only some kinds of connection take."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {}
    keepalive: dict[str, Any] = {"socket_keepalive": True, "socket_keepalive_options": {}}
    if not parts.scheme.startswith("rediss"):
        return keepalive
    checks = dict(parse_qsl(parts.query)).get("ssl_cert_reqs", "required")
    return keepalive | {"ssl_cert_reqs": checks, "ssl_check_hostname": checks == "required"}


def _connect_by_sentinel(url: str, settings: dict[str, Any]) -> "redis.Redis":
    """Follow the master that the sentinels name; asks them anew at each new connection."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = unquote(parts.path).strip("/").partition("/")
    if not hosts or not service:
        raise ValueError("the sentinels or the service name are missing")
    scheme = parts.scheme.removesuffix("+sentinel")
    query = dict(parse_qsl(parts.query))
    own = {name: query.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    at = f"{credentials}@" if credentials else ""
    # the driver's own parser reads credentials, database and options as for a single server
    plain = f"{scheme}://{at}sentinel/{db or 0}?{urlencode(query)}"
    options = dict(parse_url(plain))  # type: ignore[no-untyped-call]
    options.pop("host", None)
    is_tls = options.pop("connection_class", None) is not None
    shared = settings | _transport(plain) | ({"ssl": True} if is_tls else {})
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [_host_and_port(host) for host in hosts.split(",")],
        sentinel_kwargs=shared | _FIXED | {name: value for name, value in own.items() if value},
        **shared | options | _FIXED,
    )
    client: redis.Redis = sentinel.master_for(service)  # type: ignore[no-untyped-call]
    return client


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{text!r} is not host:port")
    return parts.hostname, parts.port or 26379


def masked(url: str) -> str:
    """Return the URL with its passwords replaced by `***`, fit for logs and messages.

    What is no URL is shown as it was typed, but for anything that may be credentials.
    """
    if "://" not in url:
        _, at, place = url.rpartition("@")
        place, mark, query = place.partition("?")
        return f"{'***@' if at else ''}{place}{mark}{_masked_query(query)}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    credentials, at, host = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    query = _masked_query(parts.query)
    shown = f"{user}:***{at}{host}" if colon else parts.netloc
    return f"{parts.scheme}://{shown}{parts.path}{'?' if query else ''}{query}"


def _masked_query(query: str) -> str:
    return "&".join(
        f"{name}=***" if "password" in name else f"{name}={value}"
        for name, value in parse_qsl(query, keep_blank_values=True)
    )


def connection_error(error: BaseException, url: str) -> BrokerUnavailable:
    """Word what the driver raised: what happened, where, and what to do; raise it `from error`."""
    place = f"Redis at {masked(url)}"
    text = " ".join(str(error).split())
    if isinstance(error, BusyLoadingError):
        says = "is still loading its data; try again when it is done"
    elif "NOAUTH" in text or "Authentication required" in text:
        says = "asks for a password; put it into the URL: redis://user:password@host:port/0"
    elif _is_refusal_of_credentials(error, text):
        says = "refused the user name or password; check them in the URL"
    elif isinstance(error, NoPermissionError):
        says = f"does not allow this user what docmill needs ({text}); extend its ACL"
    elif isinstance(error, MasterNotFoundError):
        says = "has no master that its sentinels know; check the service name and the sentinels"
    elif is_out_of_memory(error):
        says = "is out of memory; raise maxmemory, or wait until documents have been answered"
    elif isinstance(error, redis.TimeoutError):
        says = f"did not answer in time ({text}); is it overloaded, or the address wrong?"
    elif isinstance(error, ResponseError):
        says = f"refused a command: {text}"
    else:
        says = f"cannot be reached ({_reason(error, text)}); start it, or correct the URL"
    return BrokerUnavailable(f"{place} {says}")


def _is_refusal_of_credentials(error: BaseException, text: str) -> bool:
    return isinstance(error, AuthenticationError) or "WRONGPASS" in text


def _reason(error: BaseException, text: str) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return text or type(error).__name__


def is_out_of_memory(reply: object) -> bool:
    """Tell whether Redis refused a write for want of memory; nothing was written.

    A script answers so for one document of several, in bytes.
    """
    if isinstance(reply, bytes):
        return reply.startswith(b"OOM")
    return isinstance(reply, OutOfMemoryError) or (
        isinstance(reply, ResponseError) and str(reply).startswith("OOM")
    )


def is_passing(error: BaseException) -> bool:
    """Tell whether waiting may help: a restart or a failover, but not a wrong password."""
    text = str(error)
    if isinstance(error, AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return False
    if isinstance(error, BusyLoadingError | ReadOnlyError | MasterNotFoundError):
        return True
    if is_out_of_memory(error):
        return True
    if isinstance(error, ResponseError):
        return text.startswith(_WAITING_HELPS)
    return isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)
