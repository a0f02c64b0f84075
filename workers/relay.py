"""Passes on what child processes log, and remembers why one could not start.

Children log JSON lines to a pipe; a person at a terminal gets them rendered, anything else gets
them unchanged. Lines that are not JSON (tracebacks, warnings of libraries) pass as they are. May
import structlog.
"""

import contextlib
import json
from collections import deque
from typing import Any, BinaryIO

import structlog

from docmill.wire import Failure

#: Enough for a traceback's end, which is what explains a crash that logged nothing.
KEPT_LINES = 30


class LogRelay:
    """One child's log on its way to `sink`; `failure` is its own last word on why it cannot run."""

    def __init__(self, sink: BinaryIO, *, is_console: bool) -> None:
        self.failure: Failure | None = None
        self._sink = sink
        self._render = structlog.dev.ConsoleRenderer() if is_console else None
        self._last: deque[str] = deque(maxlen=KEPT_LINES)

    def feed(self, line: bytes) -> None:
        """Take one line, newline included."""
        event = _parse(line)
        if event is None:
            self._last.append(line.decode(errors="replace").strip())
        elif event.get("event") == "process.failed":
            self.failure = Failure(
                code=str(event.get("code", "")), message=str(event.get("message", ""))
            )
        # a full disk costs lines of the log: unread, the child would stop at its next one
        with contextlib.suppress(OSError):
            self._sink.write(line if event is None or self._render is None else self._shown(event))
            self._sink.flush()

    def last_words(self) -> str:
        """Return the last line that was not a log event: of a traceback, the error itself."""
        return next((line for line in reversed(self._last) if line), "")

    def _shown(self, event: dict[str, Any]) -> bytes:
        level = str(event.get("level", "info"))
        assert self._render is not None
        return (str(self._render(None, level, event)) + "\n").encode()


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
