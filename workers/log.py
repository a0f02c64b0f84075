"""Structured logs of the service's processes, on standard error.

JSON unless standard error is a terminal. Document text is never logged; ids are bound by the caller
(`log.bind(request_id=…, job_id=…, entry_id=…)`). Event names are `noun.verb_past`.
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


def configure(level: str, log_format: Literal["auto", "json", "console"], role: str) -> None:
    """Set up structlog and the standard library's logging alike, for the whole process."""

    def add_role(logger: Any, method: str, event: Any) -> Any:
        return {"role": role, **event}  # not a context variable: threads start without those

    shared: list[Any] = [
        add_role,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if is_console(log_format)
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.upper()),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=renderer)
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
