"""What the end-to-end tests share: more time, and a place of their own."""

from pathlib import Path

import pytest

#: A service starts in 2 s without a model and in 10 s with one, on two busy cores.
TIMEOUT_S = 180


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whole processes the time that they take."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(autouse=True)
def _state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep logs and the embedded Redis of a test out of the user's own folder."""
    monkeypatch.setenv("DOCMILL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DOCMILL_LOG_LEVEL", "warning")
