"""When the engine's own kernels are built."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from workers import kernels, service
from workers.settings import Settings


class Builder:
    """Stands in for `python -m engine.native`: counts its runs and says one thing."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.num_runs = 0

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """Pretend to run the command."""
        self.num_runs += 1
        assert "engine.native" in command
        return subprocess.CompletedProcess(command, 0, stdout=f"{self.said}\n", stderr="")


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    """A builder that finds no compiler."""
    builder = Builder("no CPU kernels: there is no C++ compiler")
    monkeypatch.setattr("workers.kernels.subprocess.run", builder.run)
    return builder


def test_kernels_are_built_once_and_people_are_told(builder: Builder, tmp_path: Path) -> None:
    """The first call says that it takes a while; the second does nothing, whatever came out."""
    told: list[str] = []

    assert builder.said == kernels.prepare(told.append, tmp_path)
    assert kernels.prepare(told.append, tmp_path) is None
    assert builder.num_runs == len(told) == 1


def test_other_sources_are_built_anew(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was noted counts for the same sources, Python and torch alone."""
    kernels.prepare(lambda line: None, tmp_path)
    monkeypatch.setattr("workers.kernels.metadata.version", lambda name: "99.0")

    assert kernels.prepare(lambda line: None, tmp_path) is not None
    assert builder.num_runs == 2


def test_a_home_that_cannot_be_written_to_stops_nothing(builder: Builder, tmp_path: Path) -> None:
    """Then it is tried again by the next start."""
    (tmp_path / "file").touch()

    assert kernels.prepare(lambda line: None, tmp_path / "file") == builder.said


def test_no_home_at_all_stops_nothing(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user that nobody knows; an image brings kernels of its own."""

    def nobody(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nobody)

    assert kernels.prepare(lambda line: None) == builder.said
    assert kernels.prepare(lambda line: None) == builder.said


class NoStops:
    """Nobody asks for a stop."""

    def wait(self, timeout_s: float) -> bool:
        """Let the service go on."""
        return False


def test_a_service_without_kernels_says_so(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, with the reason, to those who watch it start."""
    told: list[str] = []
    monkeypatch.setattr(kernels.prepare, "__defaults__", (tmp_path,))
    files: Any = "files"
    monkeypatch.setattr("workers.service.models.for_settings", lambda *_: files)
    monkeypatch.setattr(service, "_report", told.append)
    stops: Any = NoStops()

    assert files == service.prepare_model(Settings(device="cpu"), stops)
    assert builder.said == told[-1]
    assert len(told) == 2
