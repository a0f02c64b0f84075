"""What the model of a shard is made of: jobs, documents, deliveries and dead letters."""

from dataclasses import dataclass, field


@dataclass(eq=False, slots=True, repr=False)
class Job:
    """One life of a job id, from `open` until its keys expire."""

    name: str
    docs: list["Doc"] = field(default_factory=list)
    is_sealed: bool = False
    is_paused: bool = False
    is_cancelled: bool = False
    is_gone: bool = False
    cancelled_ids: set[str] = field(default_factory=set)
    bodies: dict[str, bytes] = field(default_factory=dict)
    history: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name

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

    `place` is where it lies: a stream, `later`, `parked`, `follower`, or '' once it has ended.
    `stream` is where it lies or comes back to. `entry` is known once it was delivered.
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

    def lie(self, place: str) -> None:
        """Put it somewhere, in nobody's hands."""
        self.place, self.holder, self.entry = place, "", ""


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
