"""What the model of a shard is made of: jobs, documents, deliveries and dead letters."""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgpack

#: How a document ended: which way its answer came, and what `told` makes of the answer.
Told = bytes | tuple[str, str, str]


def told(body: bytes) -> Told:
    """Return what a result's body says: of a failure outcome, code and message; else its bytes."""
    try:
        fields = msgpack.unpackb(body)
    except ValueError:
        return body
    if not isinstance(fields, dict):
        return body
    error = fields["error"]
    return fields["outcome"], error["code"], error["message"]


class Lying(NamedTuple):
    """Where one document lies: `stream` is where it lies or comes back to."""

    job: str
    place: str
    stream: str
    holder: str
    n: int
    fp: str
    rounds: int
    answers: tuple[bytes, ...]


@dataclass(eq=False, slots=True, repr=False)
class Job:
    """One life of a job id, from `open` until its keys expire; or the parts of `whole`."""

    name: str
    docs: list["Doc"] = field(default_factory=list)
    is_sealed: bool = False
    is_paused: bool = False
    is_cancelled: bool = False
    is_gone: bool = False
    cancelled_ids: set[str] = field(default_factory=set)
    bodies: dict[str, bytes] = field(default_factory=dict)
    history: dict[str, int] = field(default_factory=dict)
    whole: "Doc | None" = None

    def __repr__(self) -> str:
        return self.name

    @property
    def is_of_parts(self) -> bool:
        """Whether its documents are the parts of another job's document."""
        return self.whole is not None

    @property
    def is_finished(self) -> bool:
        """Whether nothing more can come."""
        return self.is_sealed and all(doc.outcome for doc in self.docs)

    @property
    def is_over(self) -> bool:
        """Whether it has ended and left no entry lying anywhere, as a cancelled one may."""
        return self.is_finished and not any(doc.place for doc in self.docs)


@dataclass(eq=False, slots=True, repr=False)
class Doc:
    """One accepted document.

    `place` is where it lies: a stream, `later`, `parked`, `follower`, `whole` (its parts are
    answered), or '' once it has ended. `stream` is where it lies or comes back to. `entry` is known
    once it was delivered.
    """

    request: str
    custom_id: str
    job: Job
    header: bytes
    size: int
    stream: str
    has_deadline: bool = False
    place: str = ""
    holder: str = ""
    entry: str = ""
    fp: str = ""
    n: int = 1
    is_running: bool = False
    outcome: str = ""
    result: tuple[str, bytes] | None = None
    parts: Job | None = None
    rounds: int = 0
    answers: tuple[bytes, ...] = ()
    num_tokens: int = 0

    def __repr__(self) -> str:
        return self.request

    @property
    def is_singly_cancelled(self) -> bool:
        """Whether the caller cancelled this document, not its job."""
        return self.custom_id in self.job.cancelled_ids

    @property
    def is_wanted(self) -> bool:
        """Whether it is still to be started."""
        return not (self.job.is_gone or self.job.is_cancelled or self.is_singly_cancelled)

    @property
    def tier(self) -> str:
        """The tier that it lies in."""
        return self.stream.split(":")[1 if self.stream.startswith("intake") else 2]

    @property
    def lying(self) -> Lying:
        """What must be seen of it."""
        place = self.place
        if place == "parked":
            place = f"job:{self.job.name}:parked"
        elif place == "whole" and self.parts is not None:
            place = f"job:{self.parts.name}:whole"
        n = 1 if place == "follower" else self.n
        of_doc = (self.stream, self.holder, n, self.fp, self.rounds, self.answers)
        return Lying(self.job.name, place, *of_doc)

    def lie(self, place: str) -> None:
        """Put it somewhere, in nobody's hands."""
        self.place, self.holder, self.entry = place, "", ""

    def come(self, stream: str, fp: str = "") -> None:
        """Put it into a stream as something new."""
        self.stream, self.fp, self.n = stream, fp, 1
        self.lie(stream)

    def forget_parts(self) -> None:
        """Go on without the answers of its parts."""
        self.rounds, self.answers = 0, ()


@dataclass(frozen=True, slots=True, repr=False)
class Ticket:
    """One delivery of one document, as its consumer remembers it."""

    consumer: str
    stream: str
    entry: str
    doc: Doc

    def __repr__(self) -> str:
        return f"<{self.doc} {self.stream}>"

    def is_held_by(self, consumer: str) -> bool:
        """Whether the delivery still counts, for this consumer."""
        doc = self.doc
        return (doc.place, doc.entry, doc.holder) == (self.stream, self.entry, consumer)


@dataclass(frozen=True, slots=True, repr=False)
class Letter:
    """A dead letter."""

    doc: Doc
    reason: str
    n: int
    has_result: bool
    history: int

    def __repr__(self) -> str:
        return f"<letter {self.history + 1} of {self.doc}>"
