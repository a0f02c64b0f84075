"""How answers are shared: what came of looking for an equal document, since the namespace began.

Decides nothing. May import docmill.shards and docmill.link.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from docmill.link import Link
from docmill.shards import Shards


@dataclass(frozen=True, slots=True)
class Sharing:
    """Counts of documents, but for the last three.

    `lookups` had a fingerprint; `process` of them were known to the worker that prepared them,
    `cached` got a stored answer, `followed` waited for an equal one that was being computed,
    `promoted` were computed after all because that one ended without an answer. `evicted` answers
    were pushed out of the store, which holds `answer_bytes` now. `tokens_saved` counts the prompt
    tokens that were not computed.
    """

    lookups: int = 0
    process: int = 0
    cached: int = 0
    followed: int = 0
    promoted: int = 0
    evicted: int = 0
    tokens_saved: int = 0
    answer_bytes: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return it as plain values, for JSON."""
        return asdict(self)


def read_sharing(shards: Shards) -> Sharing:
    """Return the figures of all shards together. Cost: one round trip a shard."""
    total: Counter[str] = Counter()
    for link in shards.all():
        total.update(_figures(link))
    return Sharing(**total)


def _figures(link: Link) -> dict[str, int]:
    names = tuple(Sharing.__dataclass_fields__)
    values: list[Any] = link.run(lambda: link.client.hmget(link.keys.sharing, names))
    return {
        name: int(value)
        for name, value in zip(names, values, strict=True)
        if value is not None and value.lstrip(b"-").isdigit()  # anybody may have written anything
    }
