"""arq's connection to Redis, made from the same URL and parameters as everybody's.

arq's own settings know neither all URL forms nor all parameters, its records are pickled unless
told otherwise, and its keys have fixed names, which on a cluster would lie anywhere: here each gets
the shard's prefix. May import arq, redis and docmill.connection.
"""

from typing import Any

import msgpack
import redis.asyncio
from arq.connections import ArqRedis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool

from docmill.connection import connect

#: What asyncio's connections do not know.
_OURS = ("command_packer", "drop_idle", "connection_pool")


class _InShard:
    """Puts the shard's prefix before each of arq's keys."""

    prefix = ""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute, or queue in a pipeline, what arq asks for."""
        placed = [
            f"{self.prefix}:{word}" if isinstance(word, str) and word.startswith("arq:") else word
            for word in args
        ]
        return super().execute_command(*placed, **options)  # type: ignore[misc]


class _PipelineInShard(_InShard, Pipeline):  # type: ignore[misc]
    """What arq sends together."""

    def __del__(self, *unused: Any) -> None:
        """Do not complain of being left open by a cancelled job: the pool is closed as a whole."""


class _ArqInShard(_InShard, ArqRedis):  # type: ignore[misc]
    """arq's client."""

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Return a pipeline to the same shard."""
        pipeline = _PipelineInShard(
            self.connection_pool, self.response_callbacks, transaction, shard_hint
        )
        pipeline.prefix = self.prefix
        return pipeline


def arq_redis(url: str, queue: str) -> ArqRedis:
    """Return arq's client for the Redis at `url`; connects on first use.

    With sentinels and on a cluster it speaks to who is the shard's master now, and errors once that
    has changed: make another one then.

    Args:
        url: As in `docmill.connection.connect`.
        queue: The queue's key, `<the shard's prefix>:arq:queue`.

    Raises:
        ConfigError: The URL cannot be used.
        redis.RedisError: Neither a sentinel nor a node of the cluster tells who the master is.

    Cost: a round trip to a sentinel or node; none where the URL names the server.
    """
    pool = connect(url, name="docmill-arq", key=queue).connection_pool
    parameters = dict(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
    for name in _OURS:
        parameters.pop(name, None)
    nodes = parameters.pop("nodes", None)
    if isinstance(pool, SentinelConnectionPool):
        parameters["host"], parameters["port"] = pool.get_master_address()  # type: ignore[no-untyped-call]
    elif nodes is not None:
        parameters["host"], parameters["port"] = nodes.master()
    kind = _asynchronous(pool.connection_class)
    client = _ArqInShard(redis.asyncio.ConnectionPool(connection_class=kind, **parameters))
    client.job_serializer, client.job_deserializer = msgpack.packb, msgpack.unpackb
    client.default_queue_name = queue
    client.prefix = queue.partition(":arq:")[0]
    return client


def _asynchronous(kind: type) -> type:
    if issubclass(kind, UnixDomainSocketConnection):
        return redis.asyncio.UnixDomainSocketConnection
    is_tls = issubclass(kind, SSLConnection)
    return redis.asyncio.SSLConnection if is_tls else redis.asyncio.Connection
