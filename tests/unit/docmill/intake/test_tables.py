"""CSV and TSV: which column is what, and what becomes of a row that cannot be used."""

import csv
import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import IntakeError, InvalidDocument, Reason
from docmill.intake import Document, Item, Refusal, read
from docmill.intake.tables import Columns, Table, decoded


def items(
    data: bytes, *, encoding: str = "utf-8", is_tabbed: bool = False, **given: Any
) -> list[Item]:
    """Read a table called `a.csv`."""
    columns = Columns(*(given.pop(name, None) for name in ("text", "custom_id", "separator")))
    limit = given.pop("max_document_bytes", 10_000)
    with decoded(io.BufferedReader(io.BytesIO(data)), encoding) as text:
        table = Table(
            text, name="a.csv", columns=columns, is_tabbed=is_tabbed, max_document_bytes=limit
        )
        return list(table.items())


def texts(found: list[Item]) -> dict[str, str | bytes]:
    """Return the documents' texts by id."""
    return {item.custom_id: item.text for item in found if isinstance(item, Document)}


def refusals(found: list[Item]) -> list[Refusal]:
    """Return the refusals."""
    return [item for item in found if isinstance(item, Refusal)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"id,text\n7,one\n8,two", {"7": "one", "8": "two"}),
        (b"id,custom_id,text\n7,a,one\n", {"a": "one"}),
        (b"note,text\nx,one\n\ny,two\n", {"a.csv#1": "one", "a.csv#2": "two"}),
        (b"\xef\xbb\xbfid,text\n7,one\n", {"7": "one"}),
        (b"only\none\n", {"a.csv#1": "one"}),
        (b'id;text\r\n7;"one, and\r\nmore"\r\n', {"7": "one, and\r\nmore"}),
        (b'"id","text"\r7,"say ""hi"""\r', {"7": 'say "hi"'}),
        ("id,text\n7,first\u2028second\x85\n".encode(), {"7": "first\u2028second\x85"}),
        (b"id,text\n7,\n", {"7": ""}),
        (b"id,text\n", {}),
    ],
)
def test_columns_are_found_by_their_names(data: bytes, expected: dict[str, str]) -> None:
    """`text` or the only one; `custom_id`, `id` or the row's number; commas or semicolons."""
    assert expected == texts(items(data))


def test_columns_can_be_chosen() -> None:
    """Text and id, by name."""
    data = b"id\ttext\tbody\tkey\n7\tone\ttwo\tk\n"

    assert {"k": "two"} == texts(items(data, is_tabbed=True, text="body", custom_id="key"))


def test_a_document_knows_its_row_and_its_line() -> None:
    """Lines are counted as an editor shows them, rows without the header and blank lines."""
    first, second = items(b'text\n"a\nb"\n\nc\n')

    assert {"file": "a.csv", "line": 2, "row": 1} == first.source
    assert {"file": "a.csv", "line": 5, "row": 2} == second.source


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        (b"x", Reason.BAD_LINE, "the row has 1 fields, the header 2"),
        (b"7,a, b", Reason.BAD_LINE, "the row has 3 fields, the header 2"),
        (b'7,"a" b', Reason.BAD_LINE, "a quote is out of place"),
        (b",a", Reason.BAD_LINE, "custom_id is empty"),
        (b"7,bee\xe9", Reason.ENCODING, "column 'text' is not valid utf-8 at byte offset 3"),
        (
            b"7," + b"x" * 90_000,
            Reason.TOO_LARGE,
            "the row's 90003 characters are more than the 75536",
        ),
        (
            b'7,"' + b'x""\n' * 30_000 + b'"',
            Reason.TOO_LARGE,
            "the row's 120005 characters are more than the 75536 a row may have; is a quote not",
        ),
    ],
)
def test_a_bad_row_is_refused_alone(row: bytes, code: Reason, words: str) -> None:
    """With its line and number; the rows around it run."""
    found = items(b"id,text\n1,one\n" + row + b"\n9,nine\n", max_document_bytes=10_000)
    [refusal] = refusals(found)

    assert {"1": "one", "9": "nine"} == texts(found)
    assert ("a.csv#2", code, 3) == (refusal.custom_id, refusal.code, refusal.line)
    assert f"a.csv:3: {words}" in refusal.message


def test_a_quote_that_is_never_closed_is_refused() -> None:
    """What it swallowed is not run as one document."""
    found = items(b'id,text\n1,one\n2,"two\n3,three\n')

    assert {"1": "one"} == texts(found)
    assert [(Reason.BAD_LINE, 3)] == [(one.code, one.line) for one in refusals(found)]


def test_encodings_are_declared() -> None:
    """UTF-16 with its mark, and cp1252; undeclared UTF-16 is refused, not guessed."""
    text = "id,text\n7,bee\u00e9\n"

    assert {"7": "bee\u00e9"} == texts(items(text.encode("utf-16"), encoding="utf-16"))
    assert {"7": "bee\u00e9"} == texts(items(text.encode("cp1252"), encoding="cp1252"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "its first row cannot be read as the names of its columns"),
        (b"a,b\n1,2\n", "there is no column 'text'; choose one of 'a', 'b' .text: --column"),
        (b"text,text\n1,2\n", "column 'text' stands twice"),
    ],
)
def test_a_table_without_the_column_is_refused_at_once(
    tmp_path: Path, data: bytes, words: str
) -> None:
    """Named outright, before anything is queued; in a folder it is an error record."""
    path = tmp_path / "a.csv"
    path.write_bytes(data)

    with pytest.raises(IntakeError, match=words):
        read(path)
    [refusal] = read(tmp_path)

    assert isinstance(refusal, Refusal)
    assert ("a.csv", Reason.BAD_REQUEST) == (refusal.custom_id, refusal.code)


def test_undeclared_utf16_is_refused(tmp_path: Path) -> None:
    """As it is for texts."""
    path = tmp_path / "a.tsv"
    path.write_bytes("text\nx\n".encode("utf-16"))
    [refusal] = read(path)

    assert isinstance(refusal, Refusal)
    assert Reason.ENCODING == refusal.code
    assert "opens with the mark of UTF-16 but was declared utf-8" in refusal.message


def test_a_table_that_cannot_be_decoded_further_is_refused(tmp_path: Path) -> None:
    """UTF-16 that is cut in the middle of a letter: the rows before it run."""
    path = tmp_path / "a.csv"
    path.write_bytes("text\none\ntwo\n".encode("utf-16") + b"x")
    *documents, refusal = read(path, encoding="utf-16")

    assert ["one", "two"] == [item.text for item in documents if isinstance(item, Document)]
    assert isinstance(refusal, Refusal)
    assert Reason.ENCODING == refusal.code


def test_memory_is_bounded_by_the_longest_row(tmp_path: Path) -> None:
    """A quote that swallows the file, and a line without an end, are read but not held."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\n"' + b"x\n" * 50_000 + b"y" * 3_000_000)
    tracemalloc.start()
    [refusal] = read(path, max_document_bytes=100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(refusal, Refusal)
    assert peak < 5_000_000


@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            st.text(st.characters(exclude_categories=["Cs"])),
        )
    ),
    delimiter=st.sampled_from([",", ";", "\t"]),
)
def test_what_csv_writes_is_read_back(rows: list[tuple[str, str]], delimiter: str) -> None:
    """Any text in any field, whatever separates the columns."""
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "text"])
    writer.writerows(rows)
    found = items(written.getvalue().encode(), is_tabbed=delimiter == "\t")

    assert [text for _, text in rows] == [item.text for item in found if isinstance(item, Document)]


@given(data=st.binary(max_size=300))
def test_any_bytes_become_rows(data: bytes) -> None:
    """Documents and refusals, never an exception."""
    for encoding in ("utf-8", "cp1252"):
        assert all(
            isinstance(item, Document | Refusal)
            for item in items(b"text\n" + data, encoding=encoding)
        )


@pytest.mark.parametrize(
    ("data", "is_tabbed", "words"),
    [
        (b"id|text\n7|one\n", False, "has no ',' but '|': .* --separator '|', .* --separator ','"),
        (b"id\ttext\n7\tone\n", False, "has no ',' but tab: .* --separator tab, "),
        (b"id\tthe; text\n7\tone\n", False, "but tab"),
        (b"id,text\n7,one\n", True, "has no tab but ',': .* --separator ',', .* --separator tab"),
        (b"id;text\n7;one\n", True, "but ';'"),
    ],
)
def test_a_header_that_has_another_separator_is_refused(
    data: bytes, is_tabbed: bool, words: str
) -> None:
    """Rather than a pile of garbage there is a refusal that names the likely separator."""
    with pytest.raises(InvalidDocument, match=words.replace("|", r"\|")):
        items(data, is_tabbed=is_tabbed)


@pytest.mark.parametrize(
    ("data", "separator", "expected"),
    [
        (b"id|text\n7|one, or; two\n", "|", {"7": "one, or; two"}),
        (b"id\ttext\n7\tone\n", "\t", {"7": "one"}),
        (b"id\xc2\xa6text\n7\xc2\xa6one\n", "\N{BROKEN BAR}", {"7": "one"}),
        (b"pros|cons\nmany|few\n", ",", {"a.csv#1": "many|few"}),
        (b"id;what|so;text\n7;x|y;one\n", None, {"7": "one"}),
        (b'"id|text"\none\n', None, {"a.csv#1": "one"}),
    ],
)
def test_the_separator_can_be_chosen(
    data: bytes, separator: str | None, expected: dict[str, str]
) -> None:
    """It counts whatever the header looks like; what is quoted in a header separates nothing."""
    assert expected == texts(items(data, separator=separator))


@pytest.mark.parametrize("separator", ["", "||", '"', "\n", "\r", "\0"])
def test_what_cannot_separate_is_refused_at_once(separator: str, tmp_path: Path) -> None:
    """Before any file is looked at."""
    with pytest.raises(IntakeError, match="is not one character, or is a quote or line break"):
        read(tmp_path, separator=separator)


@pytest.mark.parametrize(
    ("mark", "declared", "name"),
    [
        ("utf-8", "cp1252", "UTF-8"),
        ("utf-8", "utf-16", "UTF-8"),
        ("utf-16-le", "utf-8", "UTF-16"),
        ("utf-32-le", "utf-16", "UTF-32"),
    ],
)
def test_a_mark_that_contradicts_the_declaration_is_refused(
    mark: str, declared: str, name: str
) -> None:
    """A table in another encoding than was declared would be garbage or less."""
    with pytest.raises(InvalidDocument, match=f"the mark of {name} but was declared {declared}"):
        items("\ufeffid,text\n7,one\n".encode(mark), encoding=declared)
