"""docmill's client: submit documents, read answers.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from docmill._version import __version__

if TYPE_CHECKING:
    from docmill.async_client import AsyncClient, AsyncJob
    from docmill.client import Client
    from docmill.errors import DocmillError
    from docmill.intake import Document, Refusal, read, scan
    from docmill.job import Job, JobStatus, RetryReport
    from docmill.results import Result
    from docmill.results_file import read_results, write_results

_HOMES = {
    "AsyncClient": "docmill.async_client",
    "AsyncJob": "docmill.async_client",
    "Client": "docmill.client",
    "DocmillError": "docmill.errors",
    "Document": "docmill.intake",
    "Job": "docmill.job",
    "JobStatus": "docmill.job",
    "Refusal": "docmill.intake",
    "Result": "docmill.results",
    "RetryReport": "docmill.job",
    "read": "docmill.intake",
    "read_results": "docmill.results_file",
    "scan": "docmill.intake",
    "write_results": "docmill.results_file",
}

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "DocmillError",
    "Document",
    "Job",
    "JobStatus",
    "Refusal",
    "Result",
    "RetryReport",
    "__version__",
    "read",
    "read_results",
    "scan",
    "write_results",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
