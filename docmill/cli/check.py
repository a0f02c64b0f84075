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

from docmill.cli.exit import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from docmill.cli.input import Work
from docmill.cli.output import say, write_json, write_line
from docmill.cli.service_process import Event, find_service
from docmill.errors import DocmillError, IntakeError, JobRejected, ServiceError, from_code
from docmill.progress import counted, show_progress
from docmill.request import SpecBook
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
#: What is said of a finding, by what is done about it.
_DONE = {"flag": "flagged", "repair": "repaired", "reject": "rejected"}


@dataclass(slots=True)
class Summary:
    """Counts over the rows of a check."""

    verdicts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    num_flagged: int = 0
    num_alike: int = 0
    num_tokens: int = 0
    num_cut: int = 0
    num_shared: int = 0
    #: Error code -> how often, and the first message.
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Documents so far."""
        return self.verdicts.total()

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one document, as `workers.check.Row` describes it."""
        self.verdicts[row["verdict"]] += 1
        rules = {finding["rule"] for finding in row.get("findings", ())}
        self.findings.update(rules)
        self.num_flagged += bool(rules)
        self.num_alike += "near" in row and row["verdict"] != "near_duplicate"
        cut = row.get("truncation")
        kept = cut["kept_tokens"] if cut else row.get("tokens", 0)
        self.num_cut += cut["original_tokens"] - kept if cut else 0
        if row["verdict"] in ("duplicate", "near_duplicate"):
            self.num_shared += kept
        else:
            self.num_tokens += kept
        if error := row.get("error"):
            count, first = self.errors.get(error["code"], (0, ""))
            message = first or about(row["custom_id"], error["message"])
            self.errors[error["code"]] = (count + 1, message)

    def lines(self) -> list[str]:
        """Tell a person what it came to."""
        shown = [
            f"{self.verdicts[name]:,} {words[self.verdicts[name] > 1]}"
            for name, words in _WORDS.items()
            if self.verdicts[name]
        ]
        lines = [
            f"documents   {', '.join(shown) or 'none'}",
            f"tokens      {self.num_tokens:,} of documents to compute, {self.num_cut:,} cut off, "
            f"{self.num_shared:,} saved by duplicates",
        ]
        if self.num_flagged:
            by_rule = ", ".join(f"{rule} {count:,}" for rule, count in self.findings.most_common())
            lines.append(f"flagged     {counted(self.num_flagged, 'document')}: {by_rule}")
        if self.num_alike:
            alike = counted(self.num_alike, "document")
            lines.append(f"alike       {alike} almost equal to another, answered all the same")
        return lines + [
            f"{count:,} x {code}, first: {first}" for code, (count, first) in self.errors.items()
        ]


def check(work: Work, settings: Mapping[str, Any], *, as_json: bool) -> int:
    """Tell what would happen to documents; return 0, or 1 when some would get no answer.

    Args:
        work: The documents, and what is asked about them.
        settings: Override what `DOCMILL_*` says to the service.
        as_json: Whether to tell it to a program.

    Raises:
        IntakeError, JobRejected: The input or an option cannot be used.
        ServiceError: There is no service here, or its model or settings cannot be used.
    """
    SpecBook(work.options)  # refuses what no document could use
    summary = Summary()
    try:
        with closing(_events(work, settings)) as events:
            _tell(events, summary, as_json=as_json)
    except KeyboardInterrupt:
        say(f"interrupted after {counted(summary.total, 'document')}")
        return EXIT_INTERRUPTED
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
            return f"near duplicate of {row['near']['custom_id']} ({_percent(row)})"
        case verdict:
            return str(verdict)


def _remarks(row: Mapping[str, Any]) -> Iterator[str]:
    """Tell what else there is to say: what is cut, what was found, what is alike."""
    if cut := row.get("truncation"):
        yield f"{cut['policy']} keeps {cut['kept_tokens']:,} tokens"
    for finding in row.get("findings", ()):
        done = _DONE.get(finding["action"], finding["action"])
        where = f"{finding['count']:,}, first at character {finding['at']:,}"
        yield f"{finding['rule']} {done} ({where})"
    if "near" in row and row["verdict"] != "near_duplicate":
        yield f"like {row['near']['custom_id']} ({_percent(row)})"


def _percent(row: Mapping[str, Any]) -> str:
    return f"{row['near']['similarity']:.2f}"
