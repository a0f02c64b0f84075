"""How the command line speaks: data on standard output, everything for people on standard error.

May import the standard library only, until JSON is written.
"""

import sys
from typing import Any


def say(line: str) -> None:
    """Tell a person something, in one line."""
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Return text for one line of a terminal: what would steer it is shown as a dot."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def write_line(line: str) -> None:
    """Write one line for a person as the command's result; a name in it cannot steer a terminal."""
    write_record(printable(line))


def write_record(line: str) -> None:
    """Write one line of data as it is; whoever reads it gets it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one value as a line of JSON."""
    from docmill.results import json_line

    write_record(json_line(value))
