"""Waiting in tests: poll a condition, never sleep and hope."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], *, timeout_s: float = 10.0, what: str = "") -> T:
    """Call `probe` until it returns something true, and return that.

    Raises:
        AssertionError: It did not within `timeout_s`; carries the last value.
    """
    give_up_at = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {timeout_s} s: {what or probe} (last: {value!r})")
        time.sleep(0.01)
