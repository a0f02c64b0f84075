"""How commands on one machine find the service that `docmill up` runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docmill.cli.address import Address, find, published
from docmill.errors import ConfigError


def test_a_published_service_is_found(tmp_path: Path) -> None:
    """Without a URL the service of the state directory is used, with its namespace."""
    Address("unix:///r.sock", "mine", os.getpid()).publish(tmp_path)

    assert find(None, None, tmp_path) == ("unix:///r.sock", "mine")


def test_a_namespace_that_is_given_goes_before(tmp_path: Path) -> None:
    """A namespace that is asked for is used on the service found here, even the default one."""
    Address("unix:///r.sock", "mine", os.getpid()).publish(tmp_path)

    assert find(None, "other", tmp_path) == ("unix:///r.sock", "other")
    assert find(None, "default", tmp_path) == ("unix:///r.sock", "default")


def test_a_url_goes_before(tmp_path: Path) -> None:
    """A URL that is given is used as it is."""
    Address("unix:///r.sock", "mine", os.getpid()).publish(tmp_path)

    assert find("redis://host", None, tmp_path) == ("redis://host", "default")


def test_an_address_is_private(tmp_path: Path) -> None:
    """The file may hold a password, so only its owner reads it."""
    Address("redis://:secret@host", "default", 1).publish(tmp_path)

    assert (tmp_path / "service.json").stat().st_mode & 0o777 == 0o600


def test_only_the_own_address_is_withdrawn(tmp_path: Path) -> None:
    """A service that ends late leaves its successor's address alone."""
    old, new = Address("a", "default", 1), Address("b", "default", 2)
    old.publish(tmp_path)
    new.publish(tmp_path)
    old.withdraw(tmp_path)

    assert published(tmp_path) == new

    new.withdraw(tmp_path)

    assert published(tmp_path) is None


def test_a_service_that_was_killed_is_told(tmp_path: Path) -> None:
    """An address whose process has gone says to start it again."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    Address("unix:///r.sock", "default", gone.pid).publish(tmp_path)
    with pytest.raises(ConfigError, match="has ended: start it again"):
        find(None, "default", tmp_path)


def test_a_damaged_file_is_no_address(tmp_path: Path) -> None:
    """What cannot be read counts as not there."""
    (tmp_path / "service.json").write_text("{", encoding="utf-8")

    assert published(tmp_path) is None
