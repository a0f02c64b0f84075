"""The command line: `docmill run`, `up`, jobs of a running service, and its dead letters.

`app` says what can be asked for; each command's work lies in a module of its own, loaded when it is
called. Nothing else in docmill imports from here. May import typer and everything else in docmill.
"""

from docmill.cli.app import main

__all__ = ["main"]
