"""When a failed call to Redis is made again."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from docmill.errors import BrokerUnavailable, ConfigError
from docmill.link import Link, pause_s


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; time passes only by them."""
    made: list[float] = []
    monkeypatch.setattr("docmill.link.time.sleep", made.append)
    monkeypatch.setattr("docmill.link.time.monotonic", lambda: sum(made))
    return made


def flaky(*errors: Exception) -> Callable[[], str]:
    """Return an operation that raises each error once and then succeeds."""
    left = list(errors)

    def operation() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return operation


def a_link(reconnect_s: float = 60.0) -> Any:
    """Return a link to nowhere."""
    return Link("redis://127.0.0.1:1", "ns", reconnect_s)


def test_a_first_contact_fails_at_once(pauses: list[float]) -> None:
    """A wrong address is not worth waiting for."""
    with pytest.raises(BrokerUnavailable):
        a_link().run(flaky(redis.ConnectionError("refused")))

    assert [] == pauses


def test_a_first_contact_waits_for_loading(pauses: list[float]) -> None:
    """A Redis that answers at all is at the right address."""
    assert "done" == a_link().run(flaky(*[redis.BusyLoadingError("LOADING")] * 5))
    assert 5 == len(pauses)


def test_a_connection_that_worked_is_waited_for(pauses: list[float]) -> None:
    """With growing pauses, up to the limit."""
    a = a_link(reconnect_s=10)
    a.run(flaky())

    assert "done" == a.run(flaky(*[redis.ConnectionError("gone")] * 8))
    with pytest.raises(BrokerUnavailable):
        a.run(flaky(*[redis.ConnectionError("gone")] * 100))
    assert pauses[0] < pauses[5]
    assert max(pauses) <= 2.0


def test_what_will_not_pass_is_not_waited_for(pauses: list[float]) -> None:
    """A password that stopped being right, a command that is refused."""
    a = a_link()
    a.run(flaky())

    for error in (redis.AuthenticationError("invalid"), redis.ResponseError("unknown command")):
        with pytest.raises(BrokerUnavailable) as caught:
            a.run(flaky(error))
        assert error is caught.value.__cause__
    assert [] == pauses


def test_pauses_grow_and_spread() -> None:
    """Doubling from a twentieth of a second to two, never longer."""
    assert all(0.02 <= pause_s(0) <= 0.05 for _ in range(20))
    assert all(1.0 <= pause_s(50) <= 2.0 for _ in range(20))
    assert 1 < len({pause_s(3) for _ in range(5)})


@pytest.mark.parametrize("namespace", ["", "a b", "a:b", "{x}", "x" * 65, None])
def test_a_namespace_is_a_plain_name(namespace: Any) -> None:
    """It becomes part of every key."""
    with pytest.raises(ConfigError, match="namespace"):
        Link("redis://h", namespace, 1)
