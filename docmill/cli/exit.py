"""The command line's exit statuses, and how an error becomes one line and a status.

May import docmill.errors.
"""

from docmill.errors import BrokerUnavailable, DocmillError, ServiceError

EXIT_OK = 0
EXIT_INCOMPLETE = 1
EXIT_USAGE = 2
EXIT_NO_REDIS = 3
EXIT_NO_SERVICE = 4
EXIT_INTERRUPTED = 130
#: What shells say of a command whose reader went away, as `head` does when it has seen enough.
EXIT_READER_GONE = 141

_REDIS = "3 Redis cannot be reached"
_INTERRUPTED = "130 interrupted"
_SERVICE = "4 the service cannot start (model, packages, settings)"


def _table(*lines: str) -> str:
    return f"Exit status: {' · '.join(lines)}"


#: How `docmill run` ends, and the statuses of all commands.
TABLE = _table(
    "0 every document has an answer",
    "1 some have none (the output tells why)",
    "2 wrong usage or unusable input, nothing ran",
    _REDIS,
    _SERVICE,
    _INTERRUPTED,
)
CHECK_TABLE = _table(
    "0 every document would be answered",
    "1 some would not (the output tells why)",
    "2 wrong usage or unusable input",
    _SERVICE,
    _INTERRUPTED,
)
UP_TABLE = _table("0 ended by Ctrl-C", "2 wrong usage", _REDIS, f"{_SERVICE}, or has ended")
SUBMIT_TABLE = _table(
    "0 all are submitted, and with --wait answered",
    "1 with --wait: some have no answer (the output tells why)",
    "2 wrong usage or unusable input",
    _REDIS,
    _INTERRUPTED,
)
RESULTS_TABLE = _table(
    "0 every document has an answer",
    "1 some have none, or not yet (the output tells why)",
    "2 wrong usage, or no such job",
    _REDIS,
    _INTERRUPTED,
)
#: Of what does or shows one thing, or fails.
PLAIN_TABLE = _table("0 done", "2 wrong usage, or not there", _REDIS, _INTERRUPTED)
#: Of what may be done in part.
PARTS_TABLE = _table(
    "0 done",
    "1 not all of it could be done (the output tells)",
    "2 wrong usage, or not there",
    _REDIS,
    _INTERRUPTED,
)


def status_of(error: DocmillError) -> int:
    """Return the exit status for an error that ended a command."""
    if isinstance(error, BrokerUnavailable):
        return EXIT_NO_REDIS
    if isinstance(error, ServiceError):
        return EXIT_NO_SERVICE
    return EXIT_USAGE
