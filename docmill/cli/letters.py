"""The work of `docmill dead`: dead letters as a table, as JSON, put back, and dropped.

May import everything in docmill.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_OK
from docmill.cli.jobs import Target
from docmill.cli.output import printable, say, write_json, write_line
from docmill.dead import DeadLetter, DeadLetters, Verdict
from docmill.errors import IntakeError, JobError, JobRejected
from docmill.progress import counted, duration

#: Widths of the columns but the last, which gets what a terminal has left; what is longer is cut,
#: as --json shows all.
_COLUMNS = {"id": 17, "age": 10, "code": 19, "job": 24, "custom id": 24, "tries": 5}
_LEAST_WIDTH = 20

_REPLIES: dict[Verdict, str] = {
    "ok": "put back",
    "gone": "not there any more",
    "expired": "of a job that is gone or was cancelled",
    "malformed": "that do not tell whose document they are",
    "full": "not put back, because the backlog is full",
}
_HINTS: dict[Verdict, str] = {
    "gone": "'docmill dead list' shows what there is",
    "expired": "'docmill dead drop ID' forgets what no job waits for",
    "malformed": "'docmill dead show ID' has what is known of them",
    "full": "retry again when documents have been answered",
}


@dataclass(frozen=True, slots=True)
class Which:
    """The letters that a command is about: named by id, or by what they are."""

    job: str | None = None
    codes: tuple[str, ...] = ()
    older_than_s: float | None = None
    newer_than_s: float | None = None
    ids: Sequence[str] = ()
    is_all: bool = False

    @property
    def has_filters(self) -> bool:
        """Whether only some of all letters are meant."""
        return bool(self.job or self.codes) or (self.older_than_s, self.newer_than_s) != (
            None,
            None,
        )

    def check(self) -> None:
        """Refuse a command that does not say which letters it means, or says so twice.

        Raises:
            JobRejected: It does not, or says two things.
        """
        ways = [bool(self.ids), self.has_filters, self.is_all]
        if sum(ways) != 1:
            raise JobRejected(
                "say which dead letters: ids as 'docmill dead list' shows them, or filters (--job, "
                "--code, --older-than, --newer-than), or --all"
            )

    def found(self, letters: DeadLetters) -> Iterator[DeadLetter]:
        """Yield the letters that the filters let through."""
        return letters.list(self.job, self.codes, self.older_than_s, self.newer_than_s)

    def named(self, letters: DeadLetters) -> list[str]:
        """Return the ids of all letters that are meant."""
        return list(dict.fromkeys(self.ids)) or [letter.id for letter in self.found(letters)]


@contextmanager
def _open(target: Target) -> Iterator[DeadLetters]:
    shards = target.shards()
    try:
        yield DeadLetters(*shards.all())
    finally:
        shards.close()


def show_all(target: Target, which: Which, *, as_json: bool) -> int:
    """Print a table of letters and their number by code, or a line of JSON for each."""
    counts: Counter[str] = Counter()
    now = datetime.now(UTC).timestamp()
    with _open(target) as letters:
        for letter in which.found(letters):
            if as_json:
                write_json(letter.to_dict())
                continue
            if not counts:
                write_line(_row(*(name.upper() for name in _COLUMNS), "MESSAGE"))
            counts[letter.code or "unknown"] += 1
            write_line(_row_of(letter, now))
    if not as_json:
        kinds = ", ".join(f"{count:,} x {code}" for code, count in counts.most_common())
        say(f"{counted(counts.total(), 'dead letter')}{': ' if kinds else ''}{kinds}")
    return EXIT_OK


def _row_of(letter: DeadLetter, now: float) -> str:
    return _row(
        letter.id,
        duration(max(0.0, now - letter.at)),
        letter.code,
        letter.job_id,
        letter.custom_id,
        str(letter.deliveries),
        letter.message,
    )


def _row(*cells: str) -> str:
    """Return a line of the table; the id is never cut, because it is what one copies."""
    first, *others = cells
    widths = [*list(_COLUMNS.values())[1:], _message_width()]
    cut = [_cut(cell, width).ljust(width) for cell, width in zip(others, widths, strict=True)]
    return "  ".join([first.ljust(_COLUMNS["id"]), *cut]).rstrip()


def _message_width() -> int:
    taken = sum(_COLUMNS.values()) + 2 * len(_COLUMNS)
    return max(_LEAST_WIDTH, shutil.get_terminal_size((200, 24)).columns - taken)


def _cut(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def show_one(target: Target, letter_id: str, payload: Path | None, *, as_json: bool) -> int:
    """Print all that is known of one letter, and write its payload where it is wanted.

    Raises:
        JobError: There is no such letter.
        IntakeError: The payload cannot be written.
    """
    with _open(target) as letters:
        letter = letters.get(letter_id)
    if letter is None:
        raise JobError(
            f"there is no dead letter {letter_id!r:.80}; it was retried or dropped, or never was: "
            "see 'docmill dead list'"
        )
    if str(payload) == "-":
        sys.stdout.buffer.write(letter.payload or b"")
        sys.stdout.flush()
        return EXIT_OK
    if payload is not None:
        _write(payload, letter.payload or b"")
        what = "the prepared record" if letter.is_prepared else "the document"
        say(f"{counted(letter.size, 'byte')} written to {payload}: {what}")
    if as_json:
        write_json(letter.to_dict() | {"tokens": list(letter.tokens)})
    else:
        for line in _lines(letter, datetime.now(UTC).timestamp()):
            write_line(line)
    return EXIT_OK


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise IntakeError(f"payload {path} cannot be written: {error.strerror}") from error


def _lines(letter: DeadLetter, now: float) -> Iterator[str]:
    """Yield a line for everything that the letter tells."""
    kind = "the document as submitted"
    if letter.is_prepared:
        where = _where(letter.source or {})
        kind = (
            f"prepared: a prompt of {counted(len(letter.tokens), 'token')}; its text "
            f"{f'came from {where}' if where else 'is not kept'}"
        )
    told = {
        "id": letter.id,
        "given up": f"{_moment(letter.at)}, {duration(max(0.0, now - letter.at))} ago",
        "code": letter.code,
        "message": letter.message,
        "job": letter.job_id,
        "custom id": letter.custom_id,
        "request": letter.request_id,
        "submitted": _moment(letter.submitted_at) if letter.submitted_at else "",
        "source": ", ".join(f"{name} {value}" for name, value in (letter.source or {}).items()),
        "deliveries": str(letter.deliveries),
        "last held by": letter.consumer,
        "stream": letter.stream,
        "traceback": letter.trace,
        "payload": f"{letter.size:,} bytes, {kind}" if letter.payload is not None else "",
    }
    for name, value in told.items():
        if value:
            yield f"{name:<13} {printable(value)}"
    for line in letter.history:
        yield f"{'before':<13} {printable(line)}"


def _where(source: Mapping[str, Any]) -> str:
    file, line = source.get("file", ""), source.get("line")
    return f"{file}, line {line}" if line is not None else str(file)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def retry(target: Target, which: Which, *, as_json: bool) -> int:
    """Put letters back and print what became of them; return 1 if some could not be put back."""
    which.check()
    with _open(target) as letters:
        verdicts = Counter(letters.retry(which.named(letters)).values())
    if as_json:
        write_json({reply: verdicts[reply] for reply in _REPLIES})
    else:
        told = [f"{count:,} {_REPLIES[reply]}" for reply, count in verdicts.most_common()]
        write_line(", ".join(told) or "no dead letter matches")
        for reply in verdicts.keys() & _HINTS.keys():
            say(_HINTS[reply])
    return EXIT_OK if verdicts["ok"] == verdicts.total() else EXIT_INCOMPLETE


def drop(target: Target, which: Which, *, is_sure: bool, as_json: bool) -> int:
    """Forget letters and print how many; return 1 if some that were named are not there.

    Raises:
        JobRejected: They are not named by id, and nobody said to be sure.
    """
    which.check()
    with _open(target) as letters:
        ids = which.named(letters)
        if not which.ids and ids and not is_sure:
            raise JobRejected(
                f"this forgets {counted(len(ids), 'dead letter')} for good: say --yes to do it"
            )
        count = letters.drop(ids)
    if as_json:
        write_json({"dropped": count, "gone": len(ids) - count})
    else:
        missing = f", {len(ids) - count:,} not there any more" if count < len(ids) else ""
        write_line(f"{counted(count, 'dead letter')} dropped{missing}; failed results stay")
    return EXIT_OK if count == len(ids) else EXIT_INCOMPLETE
