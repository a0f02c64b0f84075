"""Files that folders and globs pass over because their kind is not read, counted by suffix.

May import the standard library only.
"""

from collections import Counter
from dataclasses import dataclass, field

#: Suffixes told apart, and those of them that a person is told.
_MAX_KEPT = 100
_MAX_TOLD = 5

_NONE = "no suffix"
_OTHERS = "others"


@dataclass(slots=True)
class Skipped:
    """How many files of which suffix were passed over.

    `docmill.read(…, on_skipped=skipped.add)` counts them while it reads.
    """

    by_suffix: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.by_suffix)

    def add(self, name: str) -> None:
        """Count a file."""
        stem, dot, end = name.rpartition("/")[2].rpartition(".")
        suffix = dot + end.lower() if stem else _NONE
        is_kept = suffix in self.by_suffix or len(self.by_suffix) < _MAX_KEPT
        self.by_suffix[suffix if is_kept else _OTHERS] += 1

    def __str__(self) -> str:
        """Tell a person in a line."""
        total = self.by_suffix.total()
        common = self.by_suffix.most_common(_MAX_TOLD)
        told = [f"{count:,} {suffix}" for suffix, count in common]
        if left := total - sum(count for _, count in common):
            told.append(f"{left:,} {_OTHERS}")
        files = "1 file" if total == 1 else f"{total:,} files"
        return f"skipped {files} of other kinds ({', '.join(told)})"
