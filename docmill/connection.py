"""How docmill talks to Redis: one way to connect, one wording for what goes wrong.

Decides every socket parameter, because the defaults of redis-py 5 and 8 differ, and turns the
driver's exceptions into one-line errors that name the place (never the password) and the remedy.
Does not decide what is retried: the driver never retries here, since a command whose reply was lost
may have been carried out. May import redis.
"""

import re
import weakref
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, parse_url
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from docmill.cluster import Place, cluster_pool
from docmill.errors import BrokerUnavailable, ConfigError
from docmill.transport import (
    DEMOTED,
    MasterMoved,
    Packer,
    SentinelConnection,
    SentinelTlsConnection,
    TcpConnection,
    TlsConnection,
    UnixConnection,
    code_of,
    text_of,
)

#: What a caller of Redis has to catch.
REDIS_ERRORS: tuple[type[Exception], ...] = (RedisError, OSError)

#: Seconds without a byte from Redis after which a connection counts as broken.
DEFAULT_TIMEOUT_S = 30.0

_CONNECT_TIMEOUT_S = 5.0
_HEALTH_CHECK_S = 30
_FAST: dict[str, Any] = {"socket_read_size": 65536, "command_packer": Packer()}
#: Not for a URL to change: everything above reads replies of this shape.
_FIXED: dict[str, Any] = {"protocol": 2, "decode_responses": False}
_FORMS = (
    "use redis://[user:password@]host:port/db, rediss://… (TLS), "
    "unix://[user:password@]/path?db=0, "
    "redis+sentinel://[user:password@]host:port,host:port/service/db "
    "or redis+cluster://[user:password@]host:port,host:port"
)
#: Codes of replies that say "not now". MOVED is none: where it is, the plain URL is what is wrong.
_WAITING_HELPS = DEMOTED | {
    *("LOADING", "BUSY", "MISCONF", "UNBLOCKED", "CLUSTERDOWN", "TRYAGAIN", "ASK"),
}
_SECRET_OPTION = re.compile(r"([?&]\w*password=)[^&]*")


def connect(
    url: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    block_s: float = 0.0,
    name: str = "docmill",
    key: str = "",
) -> "redis.Redis":
    """Return a client for the Redis at `url`; nothing is sent before its first command.

    The client is thread-safe, answers in bytes and never retries by itself. Options may follow as
    the URL's query, for instance `?ssl_ca_certs=/path/ca.pem`; the sentinels' own credentials are
    `?sentinel_username=…&sentinel_password=…`.

    Args:
        url: redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// or one of the latter
            two with rediss.
        timeout_s: Silence after which a connection counts as broken.
        block_s: The longest BLOCK that will be asked for; it is added to the silence allowed.
        name: Shown by CLIENT LIST.
        key: A key of the one shard that the client is for. In a cluster it decides to which master
            the client speaks; other shards may be with others.

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
        client = redis.Redis.from_pool(_pool(url, settings, key))
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # checks the options; sends nothing
        if pool.connection_kwargs["socket_timeout"] != settings["socket_timeout"]:
            pool.connection_kwargs["socket_timeout"] += block_s  # the URL's knows of no BLOCK
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"the Redis URL {masked(url)!r} cannot be used ({error}): {_FORMS}"
        ) from error
    return client


def _pool(url: str, settings: dict[str, Any], key: str) -> ConnectionPool:
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[2]
    after_host = url.partition("://")[2].removeprefix(parts.netloc)
    if parts.scheme != "unix" and "@" in _SECRET_OPTION.sub("", after_host):
        raise ValueError("write / ? # @ in a password as %2F %3F %23 %40")
    if kind == "sentinel":
        pool = _sentinel_pool(parts, settings)
    elif kind == "cluster":
        pool = _cluster_pool(parts, settings, key)
    else:
        pool = _plain_pool(url, settings)
    # weak: the pool holds its connections' options, and nothing else may keep it alive
    pool.connection_kwargs["drop_idle"] = weakref.WeakMethod(pool.disconnect)
    return pool


def _plain_pool(url: str, settings: dict[str, Any]) -> ConnectionPool:
    options = dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py: untyped
    classes = {"unix": UnixConnection, "rediss": TlsConnection}
    options["connection_class"] = classes.get(urlsplit(url).scheme, TcpConnection)
    return ConnectionPool(**settings | _transport(url) | _FAST | options | _FIXED)


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


def _sentinel_pool(parts: SplitResult, settings: dict[str, Any]) -> ConnectionPool:
    """Follow the master that the sentinels name; asks them anew at each new connection."""
    service, _, db = unquote(parts.path).strip("/").partition("/")
    if not service:
        raise ValueError("the service name is missing")
    query = dict(parse_qsl(parts.query))
    own = {name: query.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    shared, options, is_tls = _options(parts, db, query, settings)
    sentinel = Sentinel(  # type: ignore[no-untyped-call]  # redis-py: untyped
        _places(parts, 26379),
        sentinel_kwargs=shared
        | {"ssl": is_tls, "socket_timeout": settings["socket_connect_timeout"]}
        | _FIXED
        | {name: value for name, value in own.items() if value},
        **shared | options | _FIXED,
    )
    master: redis.Redis = sentinel.master_for(  # type: ignore[no-untyped-call]  # redis-py: untyped
        service, connection_class=SentinelTlsConnection if is_tls else SentinelConnection
    )
    return master.connection_pool


def _cluster_pool(parts: SplitResult, settings: dict[str, Any], key: str) -> ConnectionPool:
    """Follow the master that has the key's slot; asks the nodes anew at each new connection."""
    if parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has no databases")
    shared, options, is_tls = _options(parts, "0", dict(parse_qsl(parts.query)), settings)
    together = shared | _FAST | options | _FIXED
    return cluster_pool(_places(parts, 6379), key, together, is_tls=is_tls)


def _options(
    parts: SplitResult, db: str, query: dict[str, str], settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Return what all connections take, what those to data take besides, and whether by TLS.

    The driver's own parser reads credentials, database and options as for a single server.
    """
    scheme = parts.scheme.partition("+")[0]
    credentials, at, _ = parts.netloc.rpartition("@")
    plain = f"{scheme}://{credentials}{at}several/{db or 0}?{urlencode(query)}"
    options = dict(parse_url(plain))  # type: ignore[no-untyped-call]  # redis-py: untyped
    options.pop("host", None)
    is_tls = options.pop("connection_class", None) is not None
    return settings | _transport(plain), options, is_tls


def _places(parts: SplitResult, default_port: int) -> list[Place]:
    hosts = [urlsplit(f"//{text}") for text in parts.netloc.rpartition("@")[2].split(",")]
    if not all(host.hostname for host in hosts):
        raise ValueError("a host is missing")
    return [(host.hostname or "", host.port or default_port) for host in hosts]


def masked(url: str) -> str:
    """Return the URL with its passwords replaced by `***`, fit for logs and messages.

    Whatever stands before the last @ may be credentials, also where a character in them should
    have been escaped. What is no URL is shown as it was typed, but for that.
    """
    scheme, mark, rest = url.rpartition("://") if "://" not in url else url.partition("://")
    credentials, at, place = _SECRET_OPTION.sub(r"\1***", rest).rpartition("@")
    user, colon, _ = credentials.partition(":")
    if colon or not mark:
        credentials = f"{user}:***" if mark else "***"
    return f"{scheme}{mark}{credentials if at else ''}{at}{place}"


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
    elif "cluster support disabled" in text:
        says = "is no cluster; use redis:// rather than redis+cluster://"
    elif isinstance(error, MasterMoved):
        says = (
            f"is not the master of these keys now ({text}); wait until the failover or the move of "
            "the slot has ended, or correct the URL"
        )
    elif isinstance(error, ResponseError) and code_of(error) == "MOVED":
        says = "is a node of a Redis Cluster; use redis+cluster:// rather than redis://"
    elif isinstance(error, redis.TimeoutError):
        says = f"did not answer in time ({text}); is it overloaded, or the address wrong?"
    elif isinstance(error, ResponseError) and code_of(error) == "MISCONF":
        says = f"takes no writes, because it cannot save them ({text}); look at its disk and log"
    elif isinstance(error, ResponseError):
        says = f"refused a command: {' '.join(text_of(error).split())}"
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
    # scripts were forgotten between their loading and their call: the next try loads them again
    waits = BusyLoadingError | MasterNotFoundError | NoScriptError
    if isinstance(error, waits) or is_out_of_memory(error):
        return True
    if isinstance(error, ResponseError):
        return code_of(error) in _WAITING_HELPS
    return isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)
