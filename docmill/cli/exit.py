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

TABLE = """Exit status: 0 every document has an answer · 1 some have none (the output tells why) · \
2 wrong usage or unusable input, nothing ran · 3 Redis cannot be reached · 4 the service cannot \
start (model, packages, settings) · 130 interrupted"""


def status_of(error: DocmillError) -> int:
    """Return the exit status for an error that ended a command."""
    if isinstance(error, BrokerUnavailable):
        return EXIT_NO_REDIS
    if isinstance(error, ServiceError):
        return EXIT_NO_SERVICE
    return EXIT_USAGE
