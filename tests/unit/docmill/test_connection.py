"""URLs, messages and verdicts about Redis, without one."""

import pytest
import redis
from redis.exceptions import ClusterDownError, MovedError, NoScriptError
from redis.sentinel import MasterNotFoundError

from docmill.connection import (
    connect,
    connection_error,
    is_out_of_memory,
    is_passing,
    masked,
)
from docmill.errors import BrokerUnavailable, ConfigError
from docmill.transport import MasterMoved


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://:pw@h/0", "redis://:***@h/0"),
        ("rediss://me:p%40w@h:1/0?ssl_cert_reqs=none", "rediss://me:***@h:1/0?ssl_cert_reqs=none"),
        ("unix:///tmp/redis.sock", "unix:///tmp/redis.sock"),
        ("unix:///tmp/r.sock?password=pw&db=1", "unix:///tmp/r.sock?password=***&db=1"),
        (
            "redis+sentinel://u:pw@a:1,b:2/main?sentinel_password=pw",
            "redis+sentinel://u:***@a:1,b:2/main?sentinel_password=***",
        ),
        ("redis+cluster://u:pw@a:1,b:2", "redis+cluster://u:***@a:1,b:2"),
        ("redis://h/0?sentinel_password=p@w", "redis://h/0?sentinel_password=***"),
        ("redis://:pa/ss@h/0", "redis://:***@h/0"),
        ("redis://:p?a#s@s@h/0?db=1", "redis://:***@h/0?db=1"),
        ("redis://me:p[w@[broken", "redis://me:***@[broken"),
        ("localhost:6379", "localhost:6379"),
        ("unix:/tmp/r.sock", "unix:/tmp/r.sock"),
        ("me:p?w@localhost:6379", "***@localhost:6379"),
        ("localhost:6379?password=pw", "localhost:6379?password=***"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    """Whatever is printed or logged shows where, not how to get in."""
    assert shown == masked(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://localhost:port/0",
        "redis+sentinel://host:1/",
        "redis+sentinel:///main",
        "redis://localhost/0?made_up=1",
        "redis+cluster://host:1/2",
        "redis+cluster://",
        "redis+cluster://a:1,,b:2",
    ],
)
def test_an_unusable_url_says_what_is_usable(url: str) -> None:
    """One line with the forms that work."""
    with pytest.raises(ConfigError, match="use redis://") as caught:
        connect(url).ping()

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("character", "/?#")
def test_a_password_that_must_be_escaped_is_not_told(character: str) -> None:
    """The message says how to write it, and shows no part of it."""
    with pytest.raises(ConfigError, match="%2F") as caught:
        connect(f"redis+cluster://:12{character}34@h:1")

    assert "12" not in str(caught.value)
    assert "34" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words", "passes"),
    [
        (redis.ConnectionError("Connection closed"), "cannot be reached", True),
        (redis.TimeoutError("Timeout reading"), "did not answer in time", True),
        (redis.BusyLoadingError("loading"), "still loading", True),
        (redis.AuthenticationError("invalid"), "refused the user name or password", False),
        (redis.ResponseError("WRONGPASS invalid"), "refused the user name or password", False),
        (redis.AuthenticationError("Authentication required."), "asks for a password", False),
        (MasterNotFoundError("No master: 10.0.0.1"), "no master that its sentinels know", True),
        (redis.ReadOnlyError("You can't write"), "refused a command: READONLY", True),
        (MasterMoved("MOVED 7 h:1"), "is not the master of these keys now (MOVED", True),
        (redis.ResponseError("MOVED 7 h:1"), "use redis+cluster://", False),
        (MovedError("7 h:1"), "use redis+cluster://", False),  # type: ignore[no-untyped-call]
        (redis.ResponseError("CLUSTERDOWN Hash slot not served"), "CLUSTERDOWN Hash slot", True),
        (
            ClusterDownError("Hash slot not served"),  # type: ignore[no-untyped-call]
            "CLUSTERDOWN Hash slot not served",
            True,
        ),
        (
            redis.ResponseError("This instance has cluster support disabled"),
            "use redis:// rather than",
            False,
        ),
        (redis.ResponseError("MASTERDOWN link down"), "refused a command", True),
        (redis.ResponseError("OOM command not allowed"), "out of memory", True),
        (redis.ResponseError("MISCONF Errors writing to the AOF file"), "look at its disk", True),
        (NoScriptError("No matching script."), "No matching script", True),
        (redis.ResponseError("unknown command"), "refused a command", False),
        (OSError(113, "No route to host"), "No route to host", True),
    ],
)
def test_errors_are_worded_and_judged(error: Exception, words: str, passes: bool) -> None:
    """Each says what happened and where, and whether waiting may help."""
    said = connection_error(error, "redis://:pw@h/0")

    assert isinstance(said, BrokerUnavailable)
    assert words in str(said)
    assert "redis://:***@h/0" in str(said)
    assert passes == is_passing(error)


def test_want_of_memory_is_recognised() -> None:
    """As redis-py's class, as a script's error, and as nothing else."""
    assert is_out_of_memory(redis.OutOfMemoryError("x"))
    assert is_out_of_memory(redis.ResponseError("OOM command not allowed"))
    assert not is_out_of_memory(redis.ResponseError("no OOM"))
    assert is_out_of_memory(b"OOM command not allowed")
    assert not is_out_of_memory(b"OK")


@pytest.mark.parametrize("scheme", ["redis://h", "unix:///s", "redis+sentinel://h/service"])
def test_silence_is_allowed_while_a_read_blocks(scheme: str) -> None:
    """FLD-O03: whatever silence the URL allows, a read that waits for entries may be longer."""
    given = connect(f"{scheme}?socket_timeout=0.5", block_s=2.0)
    own = connect(scheme, timeout_s=3.0, block_s=2.0)

    assert 2.5 == given.connection_pool.connection_kwargs["socket_timeout"]
    assert 5.0 == own.connection_pool.connection_kwargs["socket_timeout"]
