"""Structured logs of the service's processes, on standard error.

JSON unless standard error is a terminal. Document text is never logged; ids are bound by the caller
(`log.bind(request_id=…, job_id=…, entry_id=…)`). Event names are `noun.verb_past`. Ids, errors and
file names are others' words: they can neither begin a line of their own nor steer a terminal.
"""

import logging
import sys
from typing import Any, Literal

import structlog

#: Exit status of a process that cannot start with this configuration (sysexits' EX_CONFIG): a
#: supervisor must not restart it.
EXIT_CONFIG = 78


def is_console(log_format: Literal["auto", "json", "console"]) -> bool:
    """Return whether logs are written for a person rather than for a program."""
    return log_format == "console" or (log_format == "auto" and sys.stderr.isatty())


class _Quoted:
    """Text that the console renderer shows in quotes, with what cannot be printed escaped."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def _escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _quote(logger: Any, method: str, event: Any) -> Any:
    """Make a record fit for a terminal; only a traceback has more lines, and those are indented."""
    shown: dict[str, Any] = {}
    for name, value in event.items():
        text = value if isinstance(value, str) else repr(value)
        if name in ("exception", "stack"):
            shown[name] = "\n".join(f"    {_escaped(line)}" for line in text.split("\n"))
        elif name == "event":
            shown[name] = _escaped(text)
        else:
            shown[name] = value if text.isprintable() else _Quoted(text)
    return shown


def configure(level: str, log_format: Literal["auto", "json", "console"], role: str) -> None:
    """Set up structlog and the standard library's logging alike, for the whole process."""

    def add_role(logger: Any, method: str, event: Any) -> Any:
        return {"role": role, **event}  # not a context variable: threads start without those

    shared: list[Any] = [
        add_role,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    render: list[Any] = [structlog.processors.JSONRenderer()]
    if is_console(log_format):
        plain = structlog.dev.plain_traceback  # others show local variables: documents, secrets
        render = [_quote, structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level.upper()),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def get() -> Any:
    """Return the process' logger."""
    return structlog.get_logger()


def report_failure(code: str, message: str) -> None:
    """Log why this process cannot start, in the form the supervisor shows to a person."""
    get().error("process.failed", code=code, message=message)
