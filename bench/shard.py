"""Documents moved through one shard by the product's own scripts, a batch at a call.

For benches that need what a client or a preprocessing worker would have left in Redis, without
their cost. Decides only the bytes; every record is encoded by `docmill.wire`, and a verdict that is
not the expected one ends the bench. May import docmill and workers.streams.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docmill.keys import GROUP, Keys
from docmill.scripts import Scripts
from docmill.wire import Body, Header, Message, Prepared, Spec, Usage
from workers.streams import ensure_groups

CONSUMER = "bench"
TIER = "batch"
SPEC = Spec(messages=(Message(role="user", content=(None,)),), max_tokens=512)
#: UNIX seconds; any moment will do.
NOW = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Taken:
    """An entry that was read, with its fields."""

    stream: bytes | str
    entry_id: bytes | str
    fields: Mapping[bytes, bytes]

    def named(self, *fields: bytes) -> list[bytes | str]:
        """Return stream, entry id and these fields, as scripts want them."""
        return [self.stream, self.entry_id, *(self.fields[name] for name in fields)]


class Shard:
    """One shard, its intake and one ready stream."""

    def __init__(
        self, client: Any, keys: Keys, model_version: str = "fake", consumer: str = CONSUMER
    ) -> None:
        self.client = client
        self._consumer = consumer
        self.keys = keys
        self.intake, self.ready = keys.intake(TIER), keys.ready(model_version, TIER, 0)
        self._scripts = Scripts(client, keys.prefix)
        ensure_groups(client, [self.intake, self.ready])

    def open(self, job_id: str, result_ttl_s: int = 3600) -> None:
        """Open a job."""
        self._scripts.call("open", job_id, result_ttl_s, b"", SPEC.digest(), SPEC.encode())

    def seal(self, job_id: str) -> None:
        """Seal it."""
        self._scripts.call("seal", job_id)

    def submit(self, job_id: str, custom_ids: Sequence[str], documents: Sequence[bytes]) -> None:
        """Submit documents by one call."""
        args: list[Any] = []
        for custom_id, document in zip(custom_ids, documents, strict=True):
            header = Header(
                request_id=f"{job_id}.{custom_id}",
                job_id=job_id,
                custom_id=custom_id,
                spec=SPEC.digest(),
                submitted_at=NOW,
            )
            args += [custom_id, header.request_id, header.encode(), document, SPEC.digest(), b""]
        self._expect(b"OK", "submit", job_id, TIER, *args)

    def take(self, stream: str, count: int) -> list[Taken]:
        """Read up to so many new entries."""
        replies = self.client.xreadgroup(GROUP, self._consumer, {stream: ">"}, count)
        return [Taken(name, *entry) for name, entries in replies for entry in entries]

    def prepare(self, entries: Sequence[Taken], num_tokens: int) -> None:
        """Make entries of the intake ready by one call, each with a fingerprint of its own."""
        args: list[Any] = []
        for entry in entries:
            fingerprint = entry.fields[b"i"].decode()
            prepared = Prepared(
                tokens=array("I", [len(args)] * num_tokens).tobytes(),
                document_len=num_tokens,
                fingerprint=fingerprint,
                max_tokens=SPEC.max_tokens,
                ready_at=NOW,
            )
            args += entry.named(b"i", b"j", b"b", b"h")
            args += ["ready", self.ready, prepared.encode(), fingerprint, num_tokens]
        self._expect(b"READY", "prepare", GROUP, self._consumer, 0, *args)

    def begin(self, entries: Sequence[Taken]) -> None:
        """Mark ready entries as running by one call."""
        args = [value for entry in entries for value in entry.named(b"i", b"j", b"b", b"f")]
        self._expect(b"RUN", "begin", GROUP, self._consumer, *args)

    def complete(self, entries: Sequence[Taken], text: str) -> None:
        """Answer running entries by one call; answers are not cached."""
        body = Body(text=text, finish_reason="stop", usage=Usage(completion_tokens=9)).encode()
        args: list[Any] = []
        for entry in entries:
            args += [*entry.named(b"i", b"j", b"b", b"f", b"h"), "succeeded", body]
        self._expect(b"OK", "complete", GROUP, self._consumer, 0, 0, *args)

    def _expect(self, verdict: bytes, script: Any, *args: Any) -> None:
        verdicts = set(self._scripts.call(script, *args))
        if verdicts != {verdict}:
            raise SystemExit(f"{script} said {verdicts}")
