"""Looking through input before anything is queued."""

from pathlib import Path

import pytest

from docmill.errors import IntakeError, Reason
from docmill.intake import Refusal, Skipped, scan
from docmill.intake.scan import MAX_KEPT, scan_items
from tests.support.cases import CASES


def test_documents_and_problems_are_counted() -> None:
    """Good lines count, bad ones are listed with their numbers."""
    found = scan([CASES / "i03_bad_middle.jsonl", CASES / "i01_unicode_line_separators.jsonl"])

    assert (7, 13, 0) == (found.count, found.num_problems, found.num_duplicates)
    assert 2 == found.problems[0].line


def test_a_duplicate_names_both_lines() -> None:
    """Within a file, and across files."""
    path = CASES / "c01_duplicate_custom_id.jsonl"
    within, across = scan(path), scan([path, path])

    [duplicate] = within.duplicates
    assert (f"{path}:1", f"{path}:3") == (duplicate.first, duplicate.second)
    assert "custom_id 'inv-1' stands twice" in str(duplicate)
    assert 1 < across.num_duplicates


def test_only_the_first_problems_are_kept() -> None:
    """A file full of mistakes does not fill the memory."""
    found = scan_items(Refusal(str(n), Reason.BAD_LINE, "bad") for n in range(MAX_KEPT + 5))

    assert (MAX_KEPT + 5, MAX_KEPT) == (found.num_problems, len(found.problems))


def test_missing_input_is_refused(tmp_path: Path) -> None:
    """As reading does."""
    with pytest.raises(IntakeError, match="cannot be read"):
        scan(tmp_path / "missing")


def test_files_of_other_kinds_are_counted_by_their_suffix(tmp_path: Path) -> None:
    """What a folder passes over is no problem, but is said."""
    for name in ("a.txt", "b.png", "c.PNG", "d.doc", "LICENSE", "e.png.gz", ".hidden"):
        (tmp_path / name).write_text("text")

    skipped = scan(tmp_path).skipped

    assert {".png": 2, ".doc": 1, ".gz": 1, "no suffix": 1} == skipped.by_suffix
    assert "skipped 5 files of other kinds (2 .png, 1 no suffix, 1 .doc, 1 .gz)" == str(skipped)


def test_what_is_told_of_other_kinds_is_bounded() -> None:
    """However many suffixes there are, some are told and the rest is summed up."""
    skipped = Skipped()
    for number in range(500):
        skipped.add(f"folder.d/{number}.x{number % 250}")

    assert 101 == len(skipped.by_suffix)
    assert 300 == skipped.by_suffix["others"]
    assert "500 files" in str(skipped)
    assert 5 == str(skipped).count(", ")


def test_a_table_is_looked_through_with_its_separator(tmp_path: Path) -> None:
    """Looking through takes what reading takes."""
    table = tmp_path / "table.csv"
    table.write_text("id|text\n7|one\n")

    assert 1 == scan(table, separator="|").count
    with pytest.raises(IntakeError, match="--separator"):
        scan(table)
