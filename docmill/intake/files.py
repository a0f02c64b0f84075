"""Documents from files, folders and globs.

Folders give their .txt and .md files, below them too, in sorted order; names that start with a dot
are skipped and links to folders are not followed. .jsonl and .ndjson files give one document a
line. Any other file named outright is one document. A folder that stands alone names its documents
by the path below it, everything else by the path as given. Files are read one at a time, when their
turn comes. Reading can be confined to a folder, whatever is named and wherever links lead. May
import docmill.errors.
"""

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from docmill.errors import IntakeError, Reason
from docmill.intake.base import MAX_DOCUMENT_BYTES, Document, Item, Refusal, id_problem
from docmill.intake.jsonl import read_jsonl

LINE_SUFFIXES = (".jsonl", ".ndjson")
TEXT_SUFFIXES = (".txt", ".md")

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def read(
    paths: Paths,
    *,
    encoding: str = "utf-8",
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
    inside: Path | None = None,
) -> Iterator[Item]:
    """Yield the documents in files, folders and globs.

    What is named is looked up at once, so that a missing file is known before anything is queued.

    Args:
        paths: One path or glob, or several.
        encoding: Of text files; JSON Lines are UTF-8 always.
        max_document_bytes: Larger files are refused without being read.
        inside: Where relative paths start; nothing outside of this folder is read, and a document
            whose link leads there is refused.

    Raises:
        IntakeError: A path does not exist or leads outside, a folder cannot be read, or nothing was
            named.
    """
    try:
        "".encode(encoding)
    except LookupError as error:
        raise IntakeError(f"encoding {encoding!r} is not known; try utf-8 or cp1252") from error
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    base = inside and inside.resolve()
    roots = [root for path in named for root in _expand(os.fspath(path), base)]
    if not roots:
        raise IntakeError("no input was named: give files, folders or globs")
    is_alone = len(roots) == 1
    return (
        item
        for root in roots
        for item in _read_root(root, base, is_alone, encoding, max_document_bytes)
    )


def _expand(path: str, base: Path | None) -> list[Path]:
    """Return what a path or glob names, checked for existence; it starts at `base`, if any."""
    start = base or Path()
    if not _is_inside(start / path, base):
        raise IntakeError(f"input {path!r} leads out of the folder that may be read")
    if glob.has_magic(path) and not os.path.lexists(start / path):
        found = [Path(name) for name in sorted(glob.glob(path, root_dir=base, recursive=True))]
        if not found:
            raise IntakeError(f"nothing matches {path!r}")
        # a recursive glob matches what is in its folders as well as the folders
        takes_folders = "**" not in path
        wanted = [
            name
            for name in found
            if name.suffix.lower() in LINE_SUFFIXES + TEXT_SUFFIXES
            or (takes_folders and (start / name).is_dir())
        ]
        return wanted or found
    root = start / path
    try:
        root.stat()
        if root.is_dir():
            os.scandir(root).close()
    except OSError as error:
        kind = "folder" if isinstance(error, PermissionError) and root.is_dir() else "input"
        raise IntakeError(
            f"{kind} {path!r} cannot be read: {error.strerror}; check the path"
        ) from error
    return [Path(path)]


def _is_inside(path: Path, base: Path | None) -> bool:
    """Whether a path, its links followed, lies in `base`; without one every path does."""
    try:
        return base is None or path.resolve().is_relative_to(base)
    except (OSError, RuntimeError, ValueError):  # a link to itself, or no path at all
        return False


def _read_root(
    root: Path, base: Path | None, is_alone: bool, encoding: str, max_document_bytes: int
) -> Iterator[Item]:
    place = (base or Path()) / root
    if not place.is_dir() or not _is_inside(place, base):
        yield from _read_file(place, _name(root), base, encoding, max_document_bytes)
        return
    is_empty = True
    for path in _walk(place):
        is_empty = False
        below = path.relative_to(place)
        name = _name(below if is_alone else root / below)
        yield from _read_file(path, name, base, encoding, max_document_bytes)
    if is_empty:
        raise IntakeError(f"folder {_name(root)!r} holds no {' or '.join(TEXT_SUFFIXES)} files")


def _walk(folder: Path) -> Iterator[Path]:
    """Yield a folder's text files, and its unreadable folders as if they were files."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        yield folder  # reading it as a file words the error
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        elif entry.name.lower().endswith(TEXT_SUFFIXES) and _is_file_or_broken_link(entry):
            yield Path(entry.path)


def _is_file_or_broken_link(entry: os.DirEntry[str]) -> bool:
    try:
        is_file = entry.is_file()
    except OSError:  # a link that leads back to itself
        return True
    return is_file or (entry.is_symlink() and not os.path.exists(entry.path))


def _read_file(
    path: Path, name: str, base: Path | None, encoding: str, max_bytes: int
) -> Iterator[Item]:
    source = {"file": name}
    if not _is_inside(path, base):
        message = f"{name}: it leads out of the folder that may be read"
        yield Refusal(name, Reason.UNREADABLE, message, source)
        return
    if base is not None and path.exists() and not path.is_file():
        # a pipe would be waited for without an end
        message = f"{name}: it is no file"
        yield Refusal(name, Reason.UNREADABLE, message, source)
        return
    try:
        if path.suffix.lower() in LINE_SUFFIXES:
            yield from read_jsonl(path, name=name, max_document_bytes=max_bytes)
            return
        problem = id_problem(name)
        size = path.stat().st_size
        if problem:
            yield Refusal(name[:200], Reason.BAD_REQUEST, f"{name}: {problem}", source)
        elif size > max_bytes:
            message = f"{name}: {size} bytes are more than the {max_bytes} a document may have"
            yield Refusal(name, Reason.TOO_LARGE, message, source)
        else:
            yield Document(name, path.read_bytes(), encoding, source=source)
    except OSError as error:
        message = f"{name}: it cannot be read: {error.strerror}"
        yield Refusal(name, Reason.UNREADABLE, message, source)


def _name(path: Path) -> str:
    """Return the path as text that any writer can encode; odd bytes become escapes."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
