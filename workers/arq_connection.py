"""arq's connection to Redis, made from the same URL and parameters as everybody's.

arq's own settings know neither all URL forms nor all parameters, and its records are pickled unless
told otherwise. May import arq, redis and docmill.connection.
"""

from typing import Any

import msgpack
import redis.asyncio
from arq.connections import ArqRedis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool

from docmill.connection import connect

_ASYNCHRONOUS: dict[type, type] = {
    Connection: redis.asyncio.Connection,
    SSLConnection: redis.asyncio.SSLConnection,
    UnixDomainSocketConnection: redis.asyncio.UnixDomainSocketConnection,
}


def arq_redis(url: str, queue: str) -> ArqRedis:
    """Return arq's client for the Redis at `url`; connects on first use.

    Args:
        url: As in `docmill.connection.connect`.
        queue: The queue's key.

    Raises:
        ConfigError: The URL cannot be used.
    """
    pool = connect(url, name="docmill-arq").connection_pool
    parameters = dict(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
    parameters.pop("command_packer", None)  # asyncio's connections know none
    client: ArqRedis
    if isinstance(pool, SentinelConnectionPool):
        client = _by_sentinel(pool, parameters)
    else:
        client = ArqRedis(
            redis.asyncio.ConnectionPool(
                connection_class=_ASYNCHRONOUS[pool.connection_class], **parameters
            )
        )
    client.job_serializer, client.job_deserializer = msgpack.packb, msgpack.unpackb
    client.default_queue_name = queue
    return client


def _by_sentinel(pool: Any, parameters: dict[str, Any]) -> ArqRedis:
    sentinels = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    own = dict(sentinels[0].connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
    hosts = [(s.connection_kwargs["host"], s.connection_kwargs["port"]) for s in sentinels]
    for name in ("host", "port"):
        own.pop(name)
    for name in ("connection_pool", "host", "port"):
        parameters.pop(name, None)
    is_tls = issubclass(pool.connection_class, SSLConnection)
    manager = Sentinel(  # type: ignore[no-untyped-call]
        hosts, sentinel_kwargs=own, ssl=is_tls, **parameters
    )
    client: ArqRedis = manager.master_for(pool.service_name, redis_class=ArqRedis)
    return client
