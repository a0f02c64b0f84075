"""Documents on their way, put there as the client and the preprocessing worker do it.

Speaks the real scripts, so that an engine worker can be tested without a tokenizer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from docmill.keys import GROUP, Keys
from docmill.scripts import Scripts
from docmill.wire import OUTCOMES, Body, Header, Message, Prepared, Spec
from workers.streams import ensure_groups

SPEC = Spec(messages=(Message(role="user", content=(None,)),))
NOW = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a job's result stream holds for one document."""

    custom_id: str
    how: str
    body: Body


class Documents:
    """Puts documents into one shard, and reads what became of them."""

    def __init__(self, client: Any, keys: Keys, model_version: str = "fake") -> None:
        self.client = client
        self.keys = keys
        self.scripts = Scripts(client, keys.prefix)
        self._model_version = model_version

    def open(self, job_id: str = "job") -> None:
        """Open a job."""
        self.scripts.call("open", job_id, 3600, b"", SPEC.digest(), SPEC.encode())

    def submit(
        self,
        custom_id: str,
        *,
        job_id: str = "job",
        tier: str = "batch",
        document: bytes = b"text",
        submitted_at: float = NOW,
        deadline_at: float | None = None,
    ) -> bytes:
        """Submit one document; its request id is job and custom id."""
        told = [(custom_id, document)]
        (verdict,) = self.submit_all(told, job_id, tier, submitted_at, deadline_at)
        return verdict

    def submit_all(
        self,
        told: Sequence[tuple[str, bytes]],
        job_id: str = "job",
        tier: str = "batch",
        submitted_at: float = NOW,
        deadline_at: float | None = None,
    ) -> list[bytes]:
        """Submit documents, custom id and bytes each, by one call."""
        args: list[str | bytes] = []
        for custom_id, document in told:
            header = Header(
                request_id=f"{job_id}.{custom_id}",
                job_id=job_id,
                custom_id=custom_id,
                spec=SPEC.digest(),
                tier=tier,
                submitted_at=submitted_at,
                deadline_at=deadline_at,
            )
            args += [custom_id, header.request_id, header.encode(), document]
            args += [SPEC.digest(), SPEC.encode()]
        verdicts: list[bytes] = self.scripts.call("submit", job_id, tier, *args)
        return verdicts

    def prepare(
        self,
        prompt: Sequence[int] | None = None,
        *,
        tier: str = "batch",
        bucket: int = 0,
        max_tokens: int = 16,
        fingerprint: str | Callable[[str], str] = "",
        record: bytes | None = None,
    ) -> list[bytes]:
        """Make a tier's documents ready by one call; without a prompt, each gets its own.

        Their fingerprint is given, or a function of their texts.
        """
        intake = self.keys.intake(tier)
        ensure_groups(self.client, [intake])
        replies = self.client.xreadgroup(GROUP, "preparer", {intake: ">"}, count=100_000)
        told: list[str | bytes] = []
        for entry_id, fields in replies[0][1] if replies else []:
            fp = fingerprint if isinstance(fingerprint, str) else fingerprint(fields[b"d"].decode())
            own = list(np.frombuffer(fields[b"i"].ljust(64, b" "), dtype="<u4"))
            prepared = Prepared(
                tokens=np.asarray(prompt or own, dtype="<u4").tobytes(),
                max_tokens=max_tokens,
                fingerprint=fp,
                ready_at=NOW,
                preprocess_s=0.25,
                warnings=("repaired",),
            )
            data = record if record is not None else prepared.encode()
            told += [intake, entry_id, *(fields[name] for name in (b"i", b"j", b"b", b"h"))]
            told += ["ready", self.ready(tier, bucket), data, fp, "16"]
        verdicts: list[bytes] = self.scripts.call("prepare", GROUP, "preparer", 0, *told)
        return verdicts

    def ready(self, tier: str = "batch", bucket: int = 0) -> str:
        """Return the key of a ready stream."""
        return self.keys.ready(self._model_version, tier, bucket)

    def put(self, custom_ids: Sequence[str], **prepared: Any) -> None:
        """Open the job and make these documents ready."""
        self.open()
        for custom_id in custom_ids:
            assert self.submit(custom_id, tier=prepared.get("tier", "batch")) == b"OK"
        self.prepare(**prepared)

    def results(self, job_id: str = "job") -> list[Result]:
        """Return the job's results in completion order."""
        shared = self.client.hgetall(self.keys.bodies(job_id))
        return [
            Result(
                Header.decode(fields[b"h"]).custom_id,
                fields[b"d"].decode(),
                Body.decode(shared[fields[b"s"]] if b"s" in fields else fields[b"b"]),
            )
            for _, fields in self.client.xrange(self.keys.results(job_id))
        ]

    def num_results(self, job_id: str = "job") -> int:
        """Return how many results there are."""
        length: int = self.client.xlen(self.keys.results(job_id))
        return length

    def counts(self, job_id: str = "job") -> dict[str, int]:
        """Return the job's counters that are not zero."""
        names = ("submitted", *OUTCOMES, "running")
        values = self.client.hmget(self.keys.job(job_id), names)
        return {
            name: int(value) for name, value in zip(names, values, strict=True) if int(value or 0)
        }

    def backlog(self) -> dict[str, int]:
        """Return documents and bytes in flight."""
        values = self.client.hmget(self.keys.backlog, ("docs", "bytes"))
        return dict(zip(("docs", "bytes"), (int(value or 0) for value in values), strict=True))
