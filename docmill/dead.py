"""Dead letters: entries that were given up, kept with all that is known of them.

Reads them, puts them back and drops them; decides nothing about what becomes one (the workers and
`lua/bury.lua` do). May import docmill.link and docmill.wire.
"""

import builtins
import heapq
import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, cast

from docmill.errors import MessageError
from docmill.link import Link
from docmill.scripts import ScriptName
from docmill.wire import Header, Prepared

#: Letters fetched at once; a page carries no payloads.
_PAGE_LETTERS = 256
#: Letters put back by one call, each of which moves its payload within Redis.
_RETRY_AT_ONCE = 32
_DROP_AT_ONCE = 1000

_ID = re.compile(r"(\d{1,19}-\d{1,19})(?:@(\d{1,4}))?")

#: What became of one letter that was to be retried: its document waits again; there is no such
#: letter (it was retried or dropped before); its job is gone or was cancelled; its fields do not
#: tell whose document it is; the backlog has no room.
Verdict = Literal["ok", "gone", "expired", "malformed", "full"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One entry that was given up; what it does not tell is empty.

    `code` and `message` are those of the failed result. `trace` is the digest of the traceback,
    the same for the same fault; the worker's log has it whole. `stream` is where the entry came
    from, `consumer` who had it last, after `deliveries` of them. `at` and `submitted_at` are UNIX
    seconds; `size` is the payload's bytes. `history` has a line for each earlier dead letter of the
    document. `payload` is None unless the letter was fetched whole: the document's bytes, or
    the prepared record where `is_prepared`.
    """

    id: str
    job_id: str = ""
    custom_id: str = ""
    request_id: str = ""
    code: str = ""
    message: str = ""
    trace: str = ""
    deliveries: int = 0
    consumer: str = ""
    stream: str = ""
    at: float = 0.0
    submitted_at: float = 0.0
    size: int = 0
    source: Mapping[str, Any] | None = None
    history: tuple[str, ...] = ()
    payload: bytes | None = field(default=None, repr=False)
    is_prepared: bool = False

    @classmethod
    def from_wire(cls, entry_id: bytes, found: Mapping[bytes, bytes], shard: int = 0) -> Self:
        """Read an entry of the stream of dead letters; anybody may have written anything there."""

        def text(name: bytes) -> str:
            return found.get(name, b"").decode("utf-8", "replace")

        header, payload = _header(found.get(b"h", b"")), found.get(b"d", found.get(b"p"))
        return cls(
            id=f"{entry_id.decode()}@{shard}" if shard else entry_id.decode(),
            job_id=text(b"j") or (header.job_id if header else ""),
            custom_id=header.custom_id if header else "",
            request_id=text(b"i") or (header.request_id if header else ""),
            code=text(b"reason"),
            message=text(b"error"),
            trace=text(b"trace"),
            deliveries=_number(found.get(b"n")),
            consumer=text(b"consumer"),
            stream=text(b"stream"),
            at=int(entry_id.partition(b"-")[0]) / 1000,  # ids open with milliseconds
            submitted_at=header.submitted_at if header else 0.0,
            size=_number(found.get(b"size")) if payload is None else len(payload),
            source=header.source if header else None,
            history=tuple(filter(None, text(b"history").split("\n"))),
            payload=payload,
            is_prepared=b"p" in found and b"d" not in found,
        )

    @property
    def tokens(self) -> tuple[int, ...]:
        """The prompt's token ids, if the letter was fetched whole and had been prepared."""
        if not self.is_prepared or self.payload is None:
            return ()
        try:
            tokens = Prepared.decode(self.payload).tokens
        except MessageError:
            return ()
        count = len(tokens) // 4
        return struct.unpack_from(f"<{count}I", tokens)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the payload as plain values, for JSON."""
        names = [one.name for one in fields(self) if one.name not in ("payload", "is_prepared")]
        values = {name: getattr(self, name) for name in names}
        return values | {"history": list(self.history), "source": self.source and {**self.source}}


def _header(data: bytes) -> Header | None:
    try:
        return Header.decode(data)
    except MessageError:
        return None


def _number(data: bytes | None) -> int:
    try:
        return int(data or 0)
    except ValueError:
        return 0


class DeadLetters:
    """The dead letters of one or more shards; ids of shards above the first end with `@shard`.

    Args:
        links: The shards.
    """

    def __init__(self, *links: Link) -> None:
        self._links = {link.keys.shard: link for link in links}

    def list(
        self,
        job: str | None = None,
        codes: Collection[str] = (),
        older_than_s: float | None = None,
        newer_than_s: float | None = None,
    ) -> Iterator[DeadLetter]:
        """Yield letters without their payloads, the oldest first.

        It ends after as many as there were when it began, whatever comes meanwhile. Ages are by
        Redis' clock.

        Args:
            job: Only letters of this job.
            codes: Only letters with one of these error codes; empty means any.
            older_than_s: Only letters that have been there for longer.
            newer_than_s: Only letters that have been there for less.

        Raises:
            BrokerUnavailable: Redis was away for too long.

        Cost: A round trip a page; memory is that of a page of each shard.
        """
        each = (_between(link, older_than_s, newer_than_s) for link in self._links.values())
        for letter in heapq.merge(*each, key=lambda letter: letter.at):
            if (job is None or letter.job_id == job) and (not codes or letter.code in codes):
                yield letter

    def get(self, letter_id: str) -> DeadLetter | None:
        """Return one letter with its payload, or None if there is no such letter.

        Raises:
            BrokerUnavailable: Redis was away for too long.
        """
        for link, ((_, entry_id),) in self._by_link([letter_id], 1):
            key, client = link.keys.dead, link.client
            rows: Any = link.run(lambda: client.xrange(key, entry_id, entry_id))  # noqa: B023 - called here
            for _, found in rows:
                return DeadLetter.from_wire(entry_id.encode(), found, link.keys.shard)
        return None

    def retry(self, ids: Iterable[str]) -> dict[str, Verdict]:
        """Put letters back to where they came from, with all their deliveries before them.

        Their jobs run again, and their failed results are gone. A call that was made again because
        its reply was lost says "gone" of what the first one put back.

        Raises:
            BrokerUnavailable: Redis was away for too long; asking again is safe.
        """
        verdicts: dict[str, Verdict] = dict.fromkeys(ids, "gone")
        for link, chunk in self._by_link(verdicts, _RETRY_AT_ONCE):
            said = _call(link, "retry", *(entry_id for _, entry_id in chunk))
            for (letter_id, _), verdict in zip(chunk, said, strict=True):
                verdicts[letter_id] = cast("Verdict", verdict.decode().lower())
        return verdicts

    def drop(self, ids: Iterable[str]) -> int:
        """Forget letters for good and return how many there were; their failed results stay.

        Raises:
            BrokerUnavailable: Redis was away for too long; asking again is safe.
        """
        return sum(
            _call(link, "drop_dead", *(entry_id for _, entry_id in chunk))
            for link, chunk in self._by_link(ids, _DROP_AT_ONCE)
        )

    def _by_link(
        self, ids: Iterable[str], size: int
    ) -> Iterator[tuple[Link, Sequence[tuple[str, str]]]]:
        """Yield ids as given and as their shard knows them; those of no shard are left out."""
        of_shard: dict[int, builtins.list[tuple[str, str]]] = {}
        for letter_id in ids:
            if (found := _ID.fullmatch(letter_id)) and (shard := int(found[2] or 0)) in self._links:
                of_shard.setdefault(shard, []).append((letter_id, found[1]))
        for shard, pairs in of_shard.items():
            for at in range(0, len(pairs), size):
                yield self._links[shard], pairs[at : at + size]


def _call(link: Link, script: ScriptName, *args: str | int) -> Any:
    return link.run(lambda: link.scripts.call(script, *args))


def _between(
    link: Link, older_than_s: float | None, newer_than_s: float | None
) -> Iterator[DeadLetter]:
    """Yield a shard's letters of these ages, as many as there are now at most."""
    left: int = link.run(lambda: link.client.xlen(link.keys.dead))
    start, newest_ms = "-", math.inf
    if older_than_s is not None or newer_than_s is not None:
        seconds, microseconds = link.run(link.client.time)
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        if older_than_s is not None:
            newest_ms = now_ms - round(older_than_s * 1000)
        if newer_than_s is not None:
            start = f"({max(0, now_ms - round(newer_than_s * 1000) - 1)}-{2**64 - 1}"
    while left > 0 and (page := _call(link, "dead", start, _PAGE_LETTERS)):
        for entry_id, flat in page[:left]:
            if int(entry_id.partition(b"-")[0]) > newest_ms:
                return
            found = dict(zip(flat[::2], flat[1::2], strict=True))
            yield DeadLetter.from_wire(entry_id, found, link.keys.shard)
        left -= len(page)
        start = f"({page[-1][0].decode()}"
