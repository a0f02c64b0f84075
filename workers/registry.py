"""Which models are served, as engine workers tell everybody in Redis.

Decides the record's form. Bounds of length buckets may change between versions of the
configuration; the number of buckets never shrinks, because documents may still wait where earlier
bounds put them. May import docmill.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgpack

from docmill.errors import DecodeError
from docmill.keys import Keys
from docmill.wire import unpack

#: More than anybody has: what somebody made up must not become a list of millions of streams.
_MAX_BUCKETS = 1000


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model version: its name, prompt plus output tokens, and its length buckets."""

    name: str
    context_len: int
    bucket_bounds: Sequence[int]
    num_buckets: int


def register(client: Any, keys: Keys, version: str, model: ServedModel) -> int:
    """Tell what is served; return how many buckets the version has or ever had.

    What is known already is not written again, so that a worker can start while memory is full.
    """
    known = client.hget(keys.models, version)
    num_buckets = max(_num_buckets(known), model.num_buckets)
    record = msgpack.packb(asdict(model) | {"num_buckets": num_buckets})
    if record != known:
        client.hset(keys.models, version, record)
    return num_buckets


def buckets_by_version(client: Any, keys: Keys) -> dict[str, int]:
    """Return how many buckets each model version has or ever had."""
    return {
        version.decode(errors="replace"): _num_buckets(record)
        for version, record in client.hgetall(keys.models).items()
    }


def _num_buckets(record: bytes | None) -> int:
    """Read the number; 0 from what is no such record."""
    try:
        return min(int(unpack(record or b"").get("num_buckets", 0)), _MAX_BUCKETS)
    except (DecodeError, TypeError, ValueError, OverflowError):
        return 0
