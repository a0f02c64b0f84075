"""Dead letters: entries that were given up, kept with all that is known of them.

Reads them, puts them back and drops them; decides nothing about what becomes one (the workers and
`lua/bury.lua` do). May import docmill.link and docmill.wire.
"""

import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
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

_ID = re.compile(r"\d{1,19}-\d{1,19}")

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
    def from_wire(cls, letter_id: bytes, found: Mapping[bytes, bytes]) -> Self:
        """Read an entry of the stream of dead letters; anybody may have written anything there."""

        def text(name: bytes) -> str:
            return found.get(name, b"").decode("utf-8", "replace")

        header, payload = _header(found.get(b"h", b"")), found.get(b"d", found.get(b"p"))
        return cls(
            id=letter_id.decode(),
            job_id=text(b"j") or (header.job_id if header else ""),
            custom_id=header.custom_id if header else "",
            request_id=text(b"i") or (header.request_id if header else ""),
            code=text(b"reason"),
            message=text(b"error"),
            trace=text(b"trace"),
            deliveries=_number(found.get(b"n")),
            consumer=text(b"consumer"),
            stream=text(b"stream"),
            at=int(letter_id.partition(b"-")[0]) / 1000,  # ids open with milliseconds
            submitted_at=header.submitted_at if header else 0.0,
            size=_number(found.get(b"size")) if payload is None else len(payload),
            source=header.source if header else None,
            history=tuple(text(b"history").splitlines()),
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
    """The dead letters of one namespace.

    Args:
        link: Where they are.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def list(
        self,
        job: str | None = None,
        codes: Collection[str] = (),
        older_than_s: float | None = None,
        newer_than_s: float | None = None,
    ) -> Iterator[DeadLetter]:
        """Yield letters without their payloads, the oldest first.

        Those that come while they are read are left out, so that it always ends. Ages are by Redis'
        clock.

        Args:
            job: Only letters of this job.
            codes: Only letters with one of these error codes; empty means any.
            older_than_s: Only letters that have been there for longer.
            newer_than_s: Only letters that have been there for less.

        Raises:
            BrokerUnavailable: Redis was away for too long.

        Cost: A round trip a page; memory is that of a page.
        """
        now_ms = self._now_ms()
        oldest_ms = now_ms - round(newer_than_s * 1000) if newer_than_s is not None else 0
        newest_ms = now_ms - round(older_than_s * 1000) if older_than_s is not None else now_ms
        for letter in self._since(oldest_ms):
            if letter.at * 1000 > newest_ms:
                return
            if (job is None or letter.job_id == job) and (not codes or letter.code in codes):
                yield letter

    def _now_ms(self) -> int:
        seconds, microseconds = self._link.run(self._link.client.time)
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _since(self, oldest_ms: int) -> Iterator[DeadLetter]:
        start = f"({oldest_ms - 1}-{2**64 - 1}" if oldest_ms > 0 else "-"
        while page := self._page(start):
            for letter_id, flat in page:
                pairs = zip(flat[::2], flat[1::2], strict=True)
                yield DeadLetter.from_wire(letter_id, dict(pairs))
            start = f"({page[-1][0].decode()}"

    def _page(self, start: str) -> Any:
        return self._call("dead", start, _PAGE_LETTERS)

    def _call(self, script: ScriptName, *args: str | int) -> Any:
        return self._link.run(lambda: self._link.scripts.call(script, *args))

    def get(self, letter_id: str) -> DeadLetter | None:
        """Return one letter with its payload, or None if there is no such letter.

        Raises:
            BrokerUnavailable: Redis was away for too long.
        """
        if not _is_id(letter_id):
            return None
        key = self._link.keys.dead
        rows: Any = self._link.run(lambda: self._link.client.xrange(key, letter_id, letter_id))
        return DeadLetter.from_wire(*rows[0]) if rows else None

    def retry(self, ids: Iterable[str]) -> dict[str, Verdict]:
        """Put letters back to where they came from, with all their deliveries before them.

        Their jobs run again, and their failed results are gone. A call that was made again because
        its reply was lost says "gone" of what the first one put back.

        Raises:
            BrokerUnavailable: Redis was away for too long; asking again is safe.
        """
        verdicts: dict[str, Verdict] = dict.fromkeys(ids, "gone")
        for chunk in _chunks(filter(_is_id, verdicts), _RETRY_AT_ONCE):
            for letter_id, said in zip(chunk, self._call("retry", *chunk), strict=True):
                verdicts[letter_id] = cast("Verdict", said.decode().lower())
        return verdicts

    def drop(self, ids: Iterable[str]) -> int:
        """Forget letters for good and return how many there were; their failed results stay.

        Raises:
            BrokerUnavailable: Redis was away for too long; asking again is safe.
        """
        chunks = _chunks(filter(_is_id, ids), _DROP_AT_ONCE)
        return sum(self._call("drop_dead", *chunk) for chunk in chunks)


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def _chunks(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    left = iter(ids)
    while chunk := list(islice(left, size)):
        yield chunk
