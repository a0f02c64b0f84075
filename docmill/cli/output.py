"""How the command line speaks: data on standard output, everything for people on standard error.

May import the standard library only.
"""

import json
import sys
from typing import Any


def say(line: str) -> None:
    """Tell a person something."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Return text for one line of a terminal: what would move its cursor is shown as a dot."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def write_line(line: str) -> None:
    """Write one line of data; whoever reads it gets it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one value as a line of JSON."""
    write_line(json.dumps(value, ensure_ascii=False))
