"""How every command ends: an error of ours is one line and an exit status.

May import typer, docmill.errors and docmill.cli.output.
"""

import os
import signal
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from docmill.cli.exit import EXIT_INTERRUPTED, EXIT_READER_GONE, status_of
from docmill.cli.options import DEBUG
from docmill.cli.output import say
from docmill.errors import DocmillError


class Commands(TyperGroup):
    """The commands, with one way to end for all of them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command and exit with its status."""
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            status = super().invoke(ctx)
        except DocmillError as error:
            if ctx.meta.get(DEBUG):
                raise
            _complain(error.message)
            raise typer.Exit(status_of(error)) from error
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _stop_telling()
            raise typer.Exit(EXIT_READER_GONE) from None
        raise typer.Exit(status or 0)


def _stop_telling() -> None:
    """Let nothing be written any more; what could not be would be tried again at the very end.

    Python would then end with a status of its own.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _complain(message: str) -> None:
    for line in f"docmill: {message}".split("\n"):  # some list several problems
        say(line)
