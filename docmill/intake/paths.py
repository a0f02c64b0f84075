"""Which files are meant by paths, folders and globs, and under which names.

Folders give the files whose format is known, below them too, in sorted order; names that start with
a dot are skipped and links to folders are not followed. A folder that stands alone names its files
by the path below it, everything else by the path as given. Reads nothing but folders. May import
docmill.errors.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docmill.errors import IntakeError
from docmill.intake.formats import SUFFIXES, Format, format_of

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

#: Told the name of a file that is passed over, because its kind is not read.
OnSkipped = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A file: where it is, what it is called, and what its name says it holds.

    `is_named`: it was named outright, not come upon in a folder or by a glob.
    """

    path: Path
    name: str
    form: Format | None
    is_named: bool = True


class Roots:
    """What was named, looked up at once.

    Args:
        paths: One path or glob, or several.
        inside: Where relative paths start, and out of which none may lead.

    Raises:
        IntakeError: A path does not exist or leads outside, a folder cannot be read, or nothing was
            named.
    """

    def __init__(self, paths: Paths, inside: Path | None) -> None:
        self.base = inside and inside.resolve()
        self._skipped: list[str] = []
        named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self._roots: list[Path] = []
        self._outright: set[Path] = set()
        for given in named:
            path = os.fspath(given)
            roots = _expand(path, self.base, self._skipped.append)
            self._roots += roots
            if roots == [Path(path)]:
                self._outright.update(roots)
        if not self._roots:
            raise IntakeError("no input was named: give files, folders or globs")

    def files(self, on_skipped: OnSkipped = lambda _: None) -> Iterator[Found]:
        """Yield the files, folders looked into when their turn comes.

        Args:
            on_skipped: Told what is passed over, that of globs first.

        Raises:
            IntakeError: A folder holds no file that is read.
        """
        for name in self._skipped:
            on_skipped(name)
        is_alone = len(self._roots) == 1
        for root in self._roots:
            place = self._place(root)
            if self._is_folder(root):
                yield from _below(root, place, is_alone, on_skipped)
            else:
                yield _found(place, root, is_named=root in self._outright)

    def named_files(self) -> Iterator[Found]:
        """Yield the files that were named outright or matched by a glob."""
        return (_found(self._place(root), root) for root in self._roots if self._is_file(root))

    def _place(self, root: Path) -> Path:
        return (self.base or Path()) / root

    def _is_folder(self, root: Path) -> bool:
        return self._place(root).is_dir() and is_inside(self._place(root), self.base)

    def _is_file(self, root: Path) -> bool:
        return self._place(root).is_file() and is_inside(self._place(root), self.base)


def _found(place: Path, name: Path, *, is_named: bool = True) -> Found:
    return Found(place, _name(name), format_of(name.name), is_named)


def is_inside(path: Path, base: Path | None) -> bool:
    """Whether a path, its links followed, lies in `base`; without one every path does."""
    try:
        return base is None or path.resolve().is_relative_to(base)
    except (OSError, RuntimeError, ValueError):  # a link to itself, or no path at all
        return False


def _expand(path: str, base: Path | None, on_skipped: OnSkipped) -> list[Path]:
    """Return what a path or glob names, checked for existence; it starts at `base`, if any."""
    start = base or Path()
    if not is_inside(start / path, base):
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
            if format_of(name.name) or (takes_folders and (start / name).is_dir())
        ]
        if not wanted:
            return found
        for name in set(found).difference(wanted):
            if (start / name).is_file():
                on_skipped(_name(name))
        return wanted
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


def _below(root: Path, place: Path, is_alone: bool, on_skipped: OnSkipped) -> Iterator[Found]:
    is_empty = True
    for path in _walk(place, on_skipped):
        is_empty = False
        below = path.relative_to(place)
        yield _found(path, below if is_alone else root / below, is_named=False)
    if is_empty:
        kinds = ", ".join(SUFFIXES)
        raise IntakeError(
            f"folder {_name(root)!r} holds no files of the kinds that are read: {kinds}"
        )


def _walk(folder: Path, on_skipped: OnSkipped) -> Iterator[Path]:
    """Yield a folder's files, and its unreadable folders as if they were files."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        yield folder  # reading it as a file words the error
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), on_skipped)
        elif not _is_file_or_broken_link(entry):
            continue
        elif format_of(entry.name):
            yield Path(entry.path)
        else:
            on_skipped(_name(Path(entry.path)))


def _is_file_or_broken_link(entry: os.DirEntry[str]) -> bool:
    try:
        is_file = entry.is_file()
    except OSError:  # a link that leads back to itself
        return True
    return is_file or (entry.is_symlink() and not os.path.exists(entry.path))


def _name(path: Path) -> str:
    """Return the path as text that any writer can encode; odd bytes become escapes."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
