"""How far the documents of a job are that are answered in parts.

Their parts make up jobs of their own, which go with their end; see `docmill.keys.parts_job`. May
import docmill.link.
"""

from dataclasses import dataclass
from typing import Any

from docmill.link import Link
from docmill.progress import counted
from docmill.status import FIELDS, JobStatus

#: More documents in parts at once than that are not looked into: they tell the progress themselves.
_MAX_DOCUMENTS = 64


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of the documents that are answered in parts at one moment; those done go with theirs.

    `total` is None where there are too many such documents to look into each.
    """

    documents: int = 0
    done: int = 0
    total: int | None = 0

    def __str__(self) -> str:
        """Tell it in a few words; empty where there is nothing to tell."""
        if not self.documents:
            return ""
        documents = counted(self.documents, "document")
        if self.total is None:
            return f"{documents} in parts"
        return f"{self.done:,}/{counted(self.total, 'part')} of {documents}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {"documents": self.documents, "done": self.done, "total": self.total}


def parts_of(link: Link, job_id: str) -> Parts:
    """Look how far a job's documents in parts are.

    Raises:
        BrokerUnavailable: Redis was away for too long.

    Cost: One round trip, three where there are such documents.
    """
    client, key = link.client, link.keys.splits(job_id)
    num_documents = int(link.run(lambda: client.hlen(key)))
    if not num_documents:
        return Parts()
    if num_documents > _MAX_DOCUMENTS:
        return Parts(num_documents, total=None)
    jobs: Any = link.run(lambda: client.hvals(key))

    def read() -> list[Any]:
        pipe = client.pipeline(transaction=False)
        for job in jobs:
            pipe.hmget(link.keys.job(job.decode()), FIELDS)
        replies: list[Any] = pipe.execute()
        return replies

    found = (JobStatus.from_wire("", values) for values in link.run(read))
    there = [status for status in found if status]  # the others have ended meanwhile
    done, total = sum(status.done for status in there), sum(status.submitted for status in there)
    return Parts(len(there), done, total)
