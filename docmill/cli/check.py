"""`docmill check`: what would happen to each document and why, without a model run.

A process of the service's reads and prepares the documents, which needs the model's tokenizer; this
one shows what it tells, a line a document. May import everything in docmill.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docmill.cli.asked import check_question, check_reading, hints
from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from docmill.cli.findings import DONE, FindingCounts
from docmill.cli.input import Work
from docmill.cli.output import say, write_json, write_line
from docmill.cli.service_process import Event, find_service
from docmill.cli.summary import alike_line
from docmill.errors import DocmillError, IntakeError, JobRejected, ServiceError, from_code
from docmill.intake import Skipped
from docmill.progress import counted, show_progress
from docmill.results import about

#: What is said of so many documents, one or more.
_WORDS = {
    "ready": ("ready", "ready"),
    "truncated": ("truncated", "truncated"),
    "split": ("split", "split"),
    "duplicate": ("duplicate", "duplicates"),
    "near_duplicate": ("near duplicate", "near duplicates"),
    "refused": ("refused", "refused"),
}
#: Verdicts on documents that get the answer to another one.
_REPEATS = ("duplicate", "near_duplicate")


@dataclass(slots=True)
class Summary:
    """Counts over the rows of a check, in the words of `docmill.cli.summary.Tally`."""

    verdicts: Counter[str] = field(default_factory=Counter)
    findings: FindingCounts = field(default_factory=FindingCounts)
    truncated: int = 0
    cut_tokens: int = 0
    parts: int = 0
    alike: int = 0
    prompt_tokens: int = 0
    saved_tokens: int = 0
    #: Documents whose custom id stood before.
    same_id: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    #: Error code -> how often, and the first message.
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Documents so far."""
        return self.verdicts.total()

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one document, as `workers.check.Row` describes it."""
        self.verdicts[row["verdict"]] += 1
        self.findings.add((each["rule"], each["action"]) for each in row.get("findings", ()))
        self.alike += _is_alike(row)
        if cut := row.get("truncation"):
            self.truncated += 1
            self.cut_tokens += cut["original_tokens"] - cut["kept_tokens"]
        self.parts += row.get("parts", 0)
        saved = row.get("saved_tokens", 0)
        self.saved_tokens += saved
        if row["verdict"] not in _REPEATS:
            self.prompt_tokens += row.get("prompt_tokens", 0) - saved
        self.same_id += "same_id_as" in row
        if error := row.get("error"):
            count, first = self.errors.get(error["code"], (0, ""))
            message = first or about(row["custom_id"], error["message"])
            self.errors[error["code"]] = (count + 1, message)

    def lines(self) -> Iterator[str]:
        """Tell a person what it came to."""
        shown = (
            f"{self.verdicts[name]:,} {words[self.verdicts[name] > 1]}"
            for name, words in _WORDS.items()
            if self.verdicts[name]
        )
        yield f"documents   {', '.join(shown) or 'none'}"
        combining = "; combining the answers to parts comes on top" if self.parts else ""
        yield (
            f"tokens      {self.prompt_tokens:,} in, {self.saved_tokens:,} saved by repeats, "
            f"{self.cut_tokens:,} cut{combining}"
        )
        yield from self.findings.lines()
        if self.alike:
            yield alike_line(self.alike)
        for code, (count, first) in self.errors.items():
            yield f"{count:,} x {code}, first: {first}"
        if self.skipped:
            yield str(self.skipped)
        if self.same_id:
            yield (
                f"'docmill run' and 'docmill submit' refuse this input as a whole: "
                f"{counted(self.same_id, 'custom id')} given again"
            )

    def to_dict(self) -> dict[str, Any]:
        """Tell a program the same; what `docmill run --json` tells as well has the same name."""
        return {
            "documents": self.total,
            "refused": self.verdicts["refused"],
            "repeats": sum(self.verdicts[name] for name in _REPEATS),
            "near_duplicates": self.verdicts["near_duplicate"],
            "saved_tokens": self.saved_tokens,
            "truncated": self.truncated,
            "cut_tokens": self.cut_tokens,
            "split": self.verdicts["split"],
            "parts": self.parts,
            **self.findings.to_dict(),
            "alike": self.alike,
            "prompt_tokens": self.prompt_tokens,
            "same_id": self.same_id,
            "skipped_files": dict(self.skipped.by_suffix),
            "errors": {code: count for code, (count, _) in self.errors.items()},
        }


def check(work: Work, settings: Mapping[str, Any], *, as_json: bool) -> int:
    """Tell what would happen to documents; return 0, or 1 when some would get no answer.

    Args:
        work: The documents, and what is asked about them.
        settings: Override what `DOCMILL_*` says to the service.
        as_json: Whether to tell it to a program.

    Raises:
        IntakeError, JobRejected: There is no input, or it or an option cannot be used.
        ServiceError: There is no service here, or its model or settings cannot be used.
    """
    check_question(work.options)
    check_reading(work.inputs, work.reading)
    for hint in hints(work.options):
        say(hint)
    summary = Summary()
    try:
        with closing(_events(work, settings)) as events:
            _tell(events, summary, as_json=as_json)
    except KeyboardInterrupt:
        say(f"interrupted after {counted(summary.total, 'document')}")
        return EXIT_INTERRUPTED
    if not summary.total:
        raise IntakeError(f"there are no documents in {', '.join(work.inputs)}")
    if as_json:
        write_json({"summary": summary.to_dict()})
    for line in summary.lines():
        say(line)
    return EXIT_INCOMPLETE if summary.errors else EXIT_OK


def _events(work: Work, settings: Mapping[str, Any]) -> Generator[Event, None, None]:
    """Run the service's part and yield what it tells; closing it ends that."""
    request = {
        "settings": dict(settings),
        "directory": str(Path.cwd()),
        "inputs": list(work.inputs),
        "reading": dict(work.reading),
        "options": dict(work.options),
        "limit": work.limit,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.check"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=find_service(),
        start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end it
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        yield from map(json.loads, process.stdout)
        status = process.wait()
        if status:
            raise ServiceError(f"the check ended with status {status}; what it said is above")
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _tell(events: Iterator[Event], summary: Summary, *, as_json: bool) -> None:
    """Show each event; where the lines themselves scroll by, nothing else tells the progress."""
    with show_progress(is_shown=not sys.stdout.isatty()) as reporter:
        for event in events:
            name = event.pop("event")
            if name == "preparing":
                say(event["message"])
            elif name == "model":
                say(f"as {event['model']} would get them: {event['context_len']:,} tokens at most")
                if not as_json:
                    write_line(f"{'document':<40} {'characters':>10} {'tokens':>9}  what happens")
            elif name == "document":
                summary.add(event)
                write_json(event) if as_json else write_line(describe(event))
                reporter.update(summary.total, None)
            elif name == "done":
                summary.skipped.by_suffix.update(event["skipped"])
            elif name == "fatal":
                raise _failure(event)


def _failure(event: Event) -> DocmillError:
    kind = from_code(event["code"])
    if not issubclass(kind, IntakeError | JobRejected):
        kind = ServiceError
    return kind(event["message"])


def describe(row: Mapping[str, Any]) -> str:
    """Tell a person in a line what would happen to a document, and why."""
    sizes = [f"{row[name]:,}" if name in row else "-" for name in ("characters", "tokens")]
    return (
        f"{row['custom_id']:<40} {sizes[0]:>10} {sizes[1]:>9}  "
        f"{'; '.join([_verdict(row), *_remarks(row)])}"
    )


def _verdict(row: Mapping[str, Any]) -> str:
    match row["verdict"]:
        case "refused":
            message = row["error"]["message"].removeprefix(f"{row['custom_id']}: ")
            return f"refused: {row['error']['code']}: {message}"
        case "split":
            return f"split into {counted(row['parts'], 'part')}"
        case "duplicate":
            return f"duplicate of {row['same_as']}"
        case "near_duplicate":
            return f"near duplicate of {row['near']['custom_id']} ({_similarity(row)})"
        case verdict:
            return str(verdict)


def _remarks(row: Mapping[str, Any]) -> Iterator[str]:
    """Tell what else there is to say: what is cut, what was found, what is alike."""
    if "parts" in row:
        yield f"prompts of {counted(row['prompt_tokens'], 'token')} in all, and those that combine"
    if cut := row.get("truncation"):
        yield f"{cut['policy']} keeps {cut['kept_tokens']:,} tokens"
    for finding in row.get("findings", ()):
        if finding["action"] == "reject":
            continue  # that is why the document is refused
        done = DONE[finding["action"]]
        where = f"{finding['count']:,}, first at character {finding['at']:,}"
        yield f"{finding['rule']} {done} ({where})"
    if _is_alike(row):
        yield f"almost equal to {row['near']['custom_id']} ({_similarity(row)})"
    for key, option in row.get("ignored", {}).items():
        yield f"its key {key!r} is ignored: is {option!r} meant?"


def _is_alike(row: Mapping[str, Any]) -> bool:
    """Whether a document is almost equal to another, whose answer it does not get."""
    return "near" in row and row["verdict"] != "near_duplicate"


def _similarity(row: Mapping[str, Any]) -> str:
    return f"{row['near']['similarity']:.2f}"
