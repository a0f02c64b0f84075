"""What is worth a warning at the start: a Redis that may forget, and shards that nobody serves.

Decides what is said; changes nothing. May import redis, docmill and workers.streams.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import redis

from docmill.connection import REDIS_ERRORS
from docmill.keys import Keys
from docmill.progress import counted
from workers import log
from workers.settings import Settings
from workers.streams import connect, is_outage

_LOOKED_AT = ("maxmemory-policy", "appendonly", "cluster-enabled")


def about(config: Mapping[str, str]) -> Iterator[str]:
    """Yield what may lose documents in a Redis with this configuration, and what to do about it."""
    policy = config.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"maxmemory-policy is {policy}: Redis may drop accepted documents when its memory is "
            "full; set it to noeviction (CONFIG SET, and in redis.conf)"
        )
    if config.get("appendonly", "yes") != "yes":
        yield (
            "appendonly is no: accepted documents are lost when Redis ends; set it to yes "
            "(CONFIG SET, and in redis.conf)"
        )


def warn_of_forgetting(client: Any, shard: int) -> None:
    """Log what may lose documents in this Redis; nothing where its configuration is not told.

    Shards that share a Redis say it once.

    Raises:
        redis.RedisError: An outage.
    """
    try:
        config = client.config_get(*_LOOKED_AT)
    except redis.ResponseError as error:
        if is_outage(error):
            raise
        return
    if shard == 0 or config.get("cluster-enabled") == "yes":
        for problem in about(config):
            log.get().warning("redis.unsafe", problem=problem)


def warn_of_dropped_shards(client: Any, settings: Settings) -> None:
    """Log what lies in shards that were served before and are not any more.

    Must come before the new number of shards is written.

    Raises:
        redis.RedisError: An outage.
    """
    num_before = int(client.get(Keys(settings.namespace, 0).shards) or 1)
    for shard in range(settings.shards, num_before):
        try:
            num_documents, num_jobs = _held_by(settings, shard)
        except REDIS_ERRORS as error:
            log.get().warning("shard.dropped", shard=shard, problem=f"cannot be looked at: {error}")
            continue
        if num_documents or num_jobs:
            problem = (
                f"shard {shard} holds {counted(num_documents, 'document')} without an answer and "
                f"{counted(num_jobs, 'job')} that can no longer be read: set DOCMILL_SHARDS to "
                f"{num_before} until they are done"
            )
            log.get().warning("shard.dropped", shard=shard, problem=problem)


def _held_by(settings: Settings, shard: int) -> tuple[int, int]:
    """Return how many documents wait in a shard, and how many jobs there are."""
    keys = Keys(settings.namespace, shard)
    with connect(settings.model_copy(update={"shard": shard}), "control") as client:
        job_ids = client.zrange(keys.jobs, 0, -1)
        with client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.backlog, "docs")
            for job_id in job_ids:
                pipe.exists(keys.job(job_id.decode(errors="replace")))
            num_documents, *are_there = pipe.execute()
    return int(num_documents or 0), sum(are_there)
