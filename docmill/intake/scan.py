"""Look through input before anything is queued: how much is there, and what is wrong with it.

May import nothing of docmill but its intake.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from docmill.intake.base import MAX_DOCUMENT_BYTES, Document, Item, Refusal, position_of
from docmill.intake.files import read
from docmill.intake.paths import Paths
from docmill.intake.skipped import Skipped

#: Problems and duplicates kept word for word; the rest is counted.
MAX_KEPT = 100


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A custom id that stands twice, and where."""

    custom_id: str
    first: str
    second: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"custom_id {self.custom_id!r} stands twice: {self.first} and {self.second}"


@dataclass(slots=True)
class Scan:
    """What a look through the input found.

    `count` documents can be used; `problems` and `duplicates` hold the first of each kind, and
    `num_problems` and `num_duplicates` say how many there are. `ignored` counts the lines that hold
    a key that means nothing but reads like an option, by key and option; `skipped` counts files.
    """

    count: int = 0
    problems: list[Refusal] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    num_problems: int = 0
    num_duplicates: int = 0
    ignored: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: Skipped = field(default_factory=Skipped)

    def add_problem(self, refusal: Refusal) -> None:
        """Count a problem, and keep it if it is among the first."""
        self.num_problems += 1
        if len(self.problems) < MAX_KEPT:
            self.problems.append(refusal)

    def add_duplicate(self, duplicate: Duplicate) -> None:
        """Count a duplicate, and keep it if it is among the first."""
        self.num_duplicates += 1
        if len(self.duplicates) < MAX_KEPT:
            self.duplicates.append(duplicate)

    def add_ignored(self, document: Document) -> None:
        """Count the keys that were passed over; of different ones the first are kept."""
        for pair in (document.ignored or {}).items():
            if pair in self.ignored or len(self.ignored) < MAX_KEPT:
                self.ignored[pair] += 1


def scan(
    paths: Paths,
    *,
    encoding: str = "utf-8",
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
    text_column: str | None = None,
    id_column: str | None = None,
    separator: str | None = None,
) -> Scan:
    """Read all input once and report on it; nothing is sent anywhere. Takes what `read` takes.

    Raises:
        IntakeError: As for `read`, or a folder holds nothing that is read.

    Cost: One pass over the files, PDF, Word and HTML files read as well; memory grows with the
    number of custom ids only.
    """
    skipped = Skipped()
    items = read(
        paths,
        encoding=encoding,
        max_document_bytes=max_document_bytes,
        text_column=text_column,
        id_column=id_column,
        separator=separator,
        on_skipped=skipped.add,
    )
    return scan_items(items, skipped)


def scan_items(items: Iterable[Item], skipped: Skipped | None = None) -> Scan:
    """Report on items that are already being read, while `skipped` counts files on the way."""
    found = Scan() if skipped is None else Scan(skipped=skipped)
    first_at: dict[str, str] = {}
    for number, item in enumerate(items, start=1):
        if isinstance(item, Refusal):
            found.add_problem(item)
        else:
            found.count += 1
            found.add_ignored(item)
        position = position_of(item.source, number)
        first = first_at.setdefault(item.custom_id, position)
        if first != position:
            found.add_duplicate(Duplicate(item.custom_id, first, position))
    return found
