"""The pages say what the code does."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from docmill import wire
from docmill.cli import exit as cli_exit
from docmill.scripts import ScriptName
from docs import generate_configuration, generate_preprocessing

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])


def test_the_configuration_page_is_fresh() -> None:
    """docs/configuration.md is what `make docs` would write."""
    written = generate_configuration.TARGET.read_text(encoding="utf-8")

    assert generate_configuration.page() == written, "run: make docs"


def test_the_rules_on_the_preprocessing_page_are_fresh() -> None:
    """docs/preprocessing.md has every rule, and what it finds on the labelled set."""
    written = generate_preprocessing.TARGET.read_text(encoding="utf-8")

    assert generate_preprocessing.page() == written, "run: make docs"


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


def test_the_wire_format_page_is_complete() -> None:
    """The page has a row for every script, and names every field of every record."""
    text = (ROOT / "docs" / "wire-format.md").read_text(encoding="utf-8")
    records = (wire.Spec, wire.Header, wire.Prepared, wire.Body)
    fields = {name for record in records for name in record.model_fields}

    scripts = re.findall(r"^\| `(\w+)`", text.partition("## Scripts")[2], re.M)

    assert sorted(get_args(ScriptName)) == sorted(scripts)
    assert set() == {name for name in fields if f"`{name}`" not in text}


def commands(program: str) -> set[str]:
    """Return the first words that all pages call `program` with, in code."""
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    code = [part for text in texts for part in re.findall(r"```sh\n.*?```|`[^`\n]+`", text, re.S)]
    return {word for part in code for word in re.findall(rf"\b{program} ([a-z][a-z0-9-]*)", part)}


def test_every_make_target_that_is_named_exists() -> None:
    """No page sends a reader to a target that the Makefile lacks."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.M))

    assert {"demo", "test"} <= commands("make") <= targets


def test_make_alone_lists_the_targets() -> None:
    """`make` without a target explains itself and builds nothing."""
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "make demo" in done.stdout


def test_every_docmill_command_that_is_named_explains_itself() -> None:
    """Each command of the pages has its help."""
    named = commands("docmill")

    assert {"run", "up"} <= named
    for command in named:
        subprocess.run(
            [sys.executable, "-m", "docmill.cli", command, "--help"],
            capture_output=True,
            check=True,
        )


def test_the_readme_lists_the_exit_statuses() -> None:
    """The README's table has every status of the command line, and no other."""
    named = {value for name, value in vars(cli_exit).items() if name.startswith("EXIT_")}

    assert named == {int(status) for status in re.findall(r"^\| (\d+) \|", README, re.M)}
