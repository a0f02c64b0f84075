"""What a tenant may be called.

A module of its own, so that a client that is only made loads nothing heavier. May import
docmill.errors.
"""

from typing import Any

from docmill.errors import JobRejected

_MAX_BYTES = 128


def check_tenant(tenant: Any) -> str:
    """Return the tenant, or raise JobRejected if it is no text of at most 128 bytes."""
    try:
        size = len(str.encode(tenant))
    except (TypeError, UnicodeEncodeError) as error:
        raise JobRejected(f"tenant must be text, got {tenant!a:.60}") from error
    if size > _MAX_BYTES:
        raise JobRejected(f"tenant of {size} bytes is longer than {_MAX_BYTES}")
    return str(tenant)
