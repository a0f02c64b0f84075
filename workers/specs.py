"""The request specs that documents name by digest: read from the job once, then remembered.

Decides whether a stored spec can be used. A spec is checked against its digest, because what is
remembered serves all jobs. May import docmill.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from docmill.errors import MessageError, Reason
from docmill.keys import Keys
from docmill.wire import Failure, Spec

_MAX_SPECS = 1024


class SpecStore:
    """Specs by job and digest. One thread at a time."""

    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._specs: OrderedDict[str, Spec] = OrderedDict()

    def get(self, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Spec | Failure]:
        """Return the spec for each (job id, digest), or why there is none.

        Raises:
            redis.RedisError: Redis cannot be asked.

        Cost: one round trip for all that are not remembered.
        """
        unknown = [pair for pair in wanted if pair[1] not in self._specs]
        found: dict[tuple[str, str], Spec | Failure] = {
            (job_id, digest): self._specs[digest]
            for job_id, digest in wanted
            if digest in self._specs
        }
        for (job_id, digest), data in zip(unknown, self._fetch(unknown), strict=True):
            found[job_id, digest] = self._read(digest, data)
        return found

    def _fetch(self, pairs: list[tuple[str, str]]) -> list[bytes | None]:
        if not pairs:
            return []
        with self._client.pipeline(transaction=False) as pipe:
            for job_id, digest in pairs:
                pipe.hget(self._keys.specs(job_id), digest)
            values: list[bytes | None] = pipe.execute()
            return values

    def _read(self, digest: str, data: bytes | None) -> Spec | Failure:
        if data is None:
            return _refuse(f"the job holds no request {digest[:40]!r}")
        if hashlib.blake2b(data, digest_size=16).hexdigest() != digest:
            return _refuse(f"the job's request {digest[:40]!r} is not what the digest says")
        try:
            spec = Spec.decode(data)
        except MessageError as error:
            return Failure(code=error.code, message=error.message)
        self._specs[digest] = spec
        if len(self._specs) > _MAX_SPECS:
            self._specs.popitem(last=False)
        return spec


def _refuse(message: str) -> Failure:
    return Failure(code=Reason.BAD_REQUEST, message=message)
