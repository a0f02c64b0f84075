"""The pages say what the code does."""

import re
from pathlib import Path

import pytest

from docs.generate_configuration import TARGET, page

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])


def test_the_configuration_page_is_fresh() -> None:
    """docs/configuration.md is what `make docs` would write."""
    assert page() == TARGET.read_text(encoding="utf-8"), "run: make docs"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a page names a file of the repository."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text(encoding="utf-8"))

    assert [] == [link for link in links if not (path.parent / link).exists()]


def test_every_decision_is_listed() -> None:
    """The architecture page names each decision record."""
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    records = [path.name for path in (ROOT / "docs" / "decisions").glob("*.md")]

    assert [] == [name for name in records if name not in architecture]
