"""The shards of a namespace: which of them a job lies in, and a link to each.

A job lies whole in one shard, which its id tells; the service says in shard 0 how many there are.
Decides nothing about jobs. May import docmill.link.
"""

import threading
from collections.abc import Iterator
from typing import Any

from docmill.errors import ConfigError
from docmill.keys import shard_of
from docmill.link import Link


class Shards:
    """The shards of one namespace; thread-safe. A link is made when it is first needed.

    Args:
        url: See `docmill.connection.connect`.
        namespace: Separates installations that share one Redis.
        reconnect_s: See `docmill.link.Link`.

    Raises:
        ConfigError: The URL or the namespace cannot be used.
    """

    def __init__(self, url: str, namespace: Any, reconnect_s: float) -> None:
        self._target = (url, namespace, reconnect_s)
        self._links: dict[int, Link] = {}
        self._lock = threading.Lock()
        self.first = self.link(0)

    def link(self, shard: int) -> Link:
        """Return the link to a shard."""
        with self._lock:
            if shard not in self._links:
                # that there are more than one has been read by way of the first
                self._links[shard] = Link(*self._target, shard, is_known=shard > 0)
            return self._links[shard]

    def count(self) -> int:
        """Return how many shards there are now.

        Raises:
            BrokerUnavailable: Redis cannot be reached.

        Cost: One round trip.
        """
        link = self.first
        said: Any = link.run(lambda: link.client.get(link.keys.shards))
        try:
            return max(1, int(said or 1))
        except ValueError as error:
            raise ConfigError(f"{link.keys.shards} holds {said!r:.80}, not a number") from error

    def all(self) -> list[Link]:
        """Return a link to each shard. Cost: One round trip."""
        return [self.link(shard) for shard in range(self.count())]

    def of(self, job_id: str) -> Link:
        """Return the link of the shard in which a job of this id belongs. Cost: One round trip."""
        return self.link(shard_of(job_id, self.count()))

    def where(self, job_id: str) -> Iterator[Link]:
        """Yield the links at which a job may be found, the likeliest first.

        A job stays where it is when the number of shards changes. Cost: One round trip.
        """
        links = self.all()
        likeliest = links.pop(shard_of(job_id, len(links)))
        yield likeliest
        yield from links

    def holding(self, job_id: str) -> Link:
        """Return the link of the shard that has this job, or else of the one where it belongs.

        Cost: Two round trips; with several shards up to one more for each.
        """
        links = list(self.where(job_id))
        if len(links) == 1:
            return links[0]
        return next((link for link in links if _holds(link, job_id)), links[0])

    def close(self) -> None:
        """Close the connections; the shards cannot be used afterwards."""
        with self._lock:
            for link in self._links.values():
                link.close()


def _holds(link: Link, job_id: str) -> bool:
    return bool(link.run(lambda: link.client.exists(link.keys.job(job_id))))
