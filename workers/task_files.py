"""The files of tasks: a folder read into a job, a job's results written to a file.

Decides which files a task may touch: those below `DOCMILL_FILES_DIR`, wherever links lead. Both may
be killed at any moment and run again: documents are accepted once per custom id, and a file takes
its place in one step when it is whole. May import docmill.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from docmill import intake
from docmill.client import Client
from docmill.errors import ConfigError, IntakeError, JobRejected, ResultTimeout
from docmill.intake import Item, Refusal
from docmill.intake.base import OPTIONS
from docmill.job import Job
from docmill.results import Result
from docmill.results_file import read_results, records_of_others
from docmill.tasks import Task

#: How long a read of results that are there already may take.
_AT_ONCE_S = 0.2

#: What a task may say about how files are read.
_READING = ("encoding", "text_column", "id_column", "separator")

#: Told how far a task is, often; may raise what ends it.
Note = Callable[[dict[str, int]], None]


def usable_folder(path: Path | None) -> Path:
    """Return the folder of files that the operator set.

    Raises:
        ConfigError: There is none, or it is no folder.
    """
    if path is None:
        raise ConfigError(
            "this service reads and writes no files: its operator has not set DOCMILL_FILES_DIR"
        )
    if not path.is_absolute() or not path.is_dir():
        raise ConfigError(
            f"the service's DOCMILL_FILES_DIR is {str(path)!r}: no absolute path of a folder"
        )
    return path.resolve()


def ingest(
    client: Client, task: Task, files_dir: Path, note: Note, max_document_bytes: int
) -> dict[str, int]:
    """Read files into a job, as a client on this machine would; return what was counted.

    Raises:
        IntakeError, JobRejected, JobCancelled: The task cannot be done like this.
        BrokerUnavailable: Redis was away for long; running it again goes on.
    """
    for given, known in ((task.options, OPTIONS), (task.reading, _READING)):
        if unknown := sorted(set(given).difference(known)):
            raise JobRejected(f"unknown option {unknown[0]!r}; known are {', '.join(known)}")
    counts = {"read": 0, "refused": 0}

    def counted(items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            counts["read"] += 1
            counts["refused"] += isinstance(item, Refusal)
            note(counts)
            yield item

    reading: dict[str, Any] = dict(task.reading)
    items = intake.read(
        task.paths, inside=files_dir, max_document_bytes=max_document_bytes, **reading
    )
    asked: dict[str, Any] = {**task.options, "tier": task.tier}
    job = client.submit(counted(items), job_id=task.job_id, **asked)
    return counts | {"submitted": job.status().submitted}


def export(client: Client, task: Task, files_dir: Path, note: Note) -> dict[str, int]:
    """Write a job's results to a file, which takes its place whole; return how many there are.

    What an earlier file of this name has of documents that are not among them stays, behind them.

    Raises:
        IntakeError: The file cannot be written, or there is one that holds something else.
        JobNotFound, ResultExpired: There is nothing to write.
        BrokerUnavailable: Redis was away for long; running it again starts anew.
    """
    if len(task.paths) != 1:
        raise IntakeError(f"an export writes one file, not {len(task.paths)}")
    target = _target(task.paths[0], files_dir)
    job = client.job(task.job_id)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".docmill-{task.task_id}-*"):
            left.unlink(missing_ok=True)  # of an attempt that was killed
        temporary = target.with_name(f".docmill-{task.task_id}-{task.run}")
        try:
            count = _write(_results(job), temporary, target, note)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise IntakeError(f"{task.paths[0]!r} cannot be written: {error.strerror}") from error
    return {"results": count}


def _write(results: Iterable[Result], path: Path, earlier: Path, note: Note) -> int:
    count = 0
    has_earlier = earlier.exists()
    written: set[str] = set()
    with path.open("xb") as file:
        for result in results:
            file.write(result.to_json().encode() + b"\n")
            count += 1
            if has_earlier:
                written.add(result.custom_id)
            note({"results": count})
        if has_earlier:
            file.writelines(records_of_others(earlier, written))
        file.flush()
        os.fsync(file.fileno())
    return count


def _target(path: str, files_dir: Path) -> Path:
    """Return where an export goes: a new file, or one with results, inside the folder.

    Raises:
        IntakeError: It is neither.
    """
    try:
        target = (files_dir / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself, or no path at all
        raise IntakeError(f"output {path!r} is no path: {error}") from error
    if not target.is_relative_to(files_dir):
        raise IntakeError(f"output {path!r} leads out of the folder that may be written")
    if target.exists() and not target.is_file():
        raise IntakeError(f"output {path!r} is no file")
    if target.exists() and target.stat().st_size and not _begins_with_a_result(target):
        raise IntakeError(f"output {path!r} holds something else than results")
    return target


def _begins_with_a_result(path: Path) -> bool:
    with contextlib.suppress(IntakeError):
        return next(read_results(path), None) is not None
    return False


def _results(job: Job) -> Iterator[Result]:
    """Yield the results that are there now, however many come meanwhile."""
    with contextlib.suppress(ResultTimeout):
        yield from islice(job.results(timeout=_AT_ONCE_S), job.status().done)
