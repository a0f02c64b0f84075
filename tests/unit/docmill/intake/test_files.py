"""Documents from files, folders and globs: which, in what order, under which names."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from docmill.errors import IntakeError, Reason
from docmill.intake import Document, Refusal, read
from docmill.results import Result
from docmill.results_file import write_results
from docmill.wire import Failure
from tests.support.cases import CASES
from tests.support.documents import docx, paragraph, pdf


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `papers` in the working directory."""
    for name in ("b.txt", "a.md", "c.png", ".hidden.txt", "sub/d.TXT", ".git/e.txt"):
        path = tmp_path / "papers" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "papers"


def names(paths: Any) -> list[str]:
    """Return the custom ids that reading gives."""
    return [item.custom_id for item in read(paths)]


def test_a_folder_gives_its_texts_sorted_by_relative_path(folder: Path) -> None:
    """Text files at any depth, without hidden ones and other kinds."""
    assert ["a.md", "b.txt", "sub/d.TXT"] == names("papers")


def test_several_inputs_are_named_as_given(folder: Path) -> None:
    """Equal names in two folders stay apart."""
    assert ["papers/a.md", "papers/b.txt", "papers/sub/d.TXT", "papers/b.txt"] == names(
        ["papers", Path("papers/b.txt")]
    )


def test_a_glob_gives_what_matches(folder: Path) -> None:
    """Sorted, deep if asked for; other kinds of file only where nothing else matches."""
    assert ["papers/a.md", "papers/b.txt", "papers/sub/d.TXT"] == names("papers/*")
    assert ["papers/b.txt", "papers/sub/d.TXT"] == names("papers/**/*.[tT]*")
    assert ["papers/c.png"] == names("papers/*.png")
    assert ["a.md", "b.txt", "sub/d.TXT"] == names("pap*")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("papers", ["papers/c.png", "papers/sub/LICENSE", "papers/sub/old.DOC"]),
        (
            ["papers/sub", "papers/*"],
            ["papers/c.png", *2 * ["papers/sub/LICENSE"], *2 * ["papers/sub/old.DOC"]],
        ),
        ("papers/*.png", []),
        ("papers/c.png", []),
    ],
)
def test_what_is_passed_over_is_told(folder: Path, paths: Any, expected: list[str]) -> None:
    """Files of other kinds in folders and globs, but not hidden ones, nor folders and links."""
    for name in ("sub/old.DOC", "sub/LICENSE", "sub/.hidden"):
        (folder / name).write_text(name)
    (folder / "sub" / "link.d").symlink_to(folder)
    skipped: list[str] = []

    items = read(paths, on_skipped=skipped.append)

    assert [] == skipped
    list(items)
    assert expected == sorted(skipped)


def test_the_separator_holds_for_all_tables(folder: Path) -> None:
    """A named table is looked at before anything is read, one in a folder in its turn."""
    (folder / "table.csv").write_text("id|text\n7|one\n")

    with pytest.raises(IntakeError, match=r"table\.csv: its first row has no ',' but '\|'"):
        read("papers/table.csv")
    refused = [item for item in read("papers") if isinstance(item, Refusal)]
    assert [("table.csv", Reason.BAD_REQUEST)] == [(one.custom_id, one.code) for one in refused]
    assert ["7"] == [item.custom_id for item in read("papers/table.csv", separator="|")]


@pytest.mark.parametrize("paths", ["papers", "papers/*", "papers/*.jsonl"])
def test_an_output_beside_documents_is_none_of_them(folder: Path, paths: str) -> None:
    """Results are no documents where a folder or glob comes upon them; lines like them may be."""
    failed = Failure(code="too_long", message="long")
    answer = Result('a "quoted" \\ name', "succeeded", text="Yes.")
    write_results([answer, Result("b", "failed", error=failed)], folder / "answers.jsonl")
    write_results([Result("b", "failed", error=failed)], folder / "failed.jsonl")
    line = '{"id": "batch_req_1", "text": "\\"custom_id\\": \\"a\\", \\"response\\":"}'
    (folder / "in.jsonl").write_text(line)

    items = [item for item in read(paths) if (item.source or {}).get("line")]
    assert [("batch_req_1", True)] == [
        (item.custom_id, isinstance(item, Document)) for item in items
    ]


def test_an_output_that_is_named_is_read(folder: Path) -> None:
    """Whoever names it hears of each line why it is no document."""
    write_results([Result("a", "succeeded", text="Yes.")], folder / "answers.jsonl")
    (item,) = read("papers/answers.jsonl")

    assert isinstance(item, Refusal)


def test_a_name_with_glob_characters_is_itself(folder: Path) -> None:
    """An existing file wins over the pattern it looks like."""
    (folder / "x[1].txt").write_text("x")

    assert ["papers/x[1].txt"] == names("papers/x[1].txt")


def test_bytes_are_handed_over_as_they_are() -> None:
    """An encoding is declared, never guessed."""
    [plain] = read(CASES / "i06_cp1252.txt")
    [declared] = read(CASES / "i06_cp1252.txt", encoding="cp1252")

    assert isinstance(plain, Document)
    assert isinstance(declared, Document)
    assert ("utf-8", "cp1252") == (plain.encoding, declared.encoding)
    assert plain.text == declared.text == (CASES / "i06_cp1252.txt").read_bytes()


def test_a_large_file_is_refused_unread(folder: Path) -> None:
    """Its size and the limit are named, and the others run."""
    (folder / "a.md").write_bytes(b"x" * 101)

    first, *others = read("papers", max_document_bytes=100)

    assert isinstance(first, Refusal)
    assert Reason.TOO_LARGE == first.code
    assert "101 bytes are more than the 100" in first.message
    assert all(isinstance(item, Document) for item in others)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ("missing.txt", "'missing.txt' cannot be read: No such file"),
        (["papers", "missing"], "'missing'"),
        ("papers/*.doc", "nothing matches"),
        ([], "no input"),
    ],
)
def test_missing_input_is_refused_at_once(folder: Path, paths: Any, words: str) -> None:
    """Before anything is read, in one line."""
    with pytest.raises(IntakeError, match=words):
        read(paths)


def test_a_folder_that_cannot_be_read_is_refused_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy is in the system's own words."""

    def refuse(path: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)  # a test that runs as root can read everything

    with pytest.raises(IntakeError, match="folder 'papers' cannot be read: Permission denied"):
        read("papers")


def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    """Nothing to do is no success."""
    with pytest.raises(IntakeError, match=r"holds no files of the kinds that are read: \.csv, "):
        list(read(tmp_path))


def test_what_cannot_be_read_below_a_folder_is_refused_alone(folder: Path) -> None:
    """A link to nowhere or to itself is an error record; the others run."""
    (folder / "aa.txt").symlink_to("nowhere")
    (folder / "ab.txt").symlink_to("ab.txt")

    items = {item.custom_id: item for item in read("papers")}

    for name in ("aa.txt", "ab.txt"):
        item = items[name]
        assert isinstance(item, Refusal)
        assert Reason.UNREADABLE == item.code
    assert 5 == len(items)


def test_links_to_folders_are_not_followed(folder: Path) -> None:
    """A link back up does not read for ever."""
    (folder / "loop").symlink_to(folder, target_is_directory=True)

    assert ["a.md", "b.txt", "sub/d.TXT"] == names("papers")


def test_an_unknown_encoding_is_refused(folder: Path) -> None:
    """A typing error does not become an error record for each file."""
    with pytest.raises(IntakeError, match="encoding 'latin-99'"):
        read("papers", encoding="latin-99")


def test_a_name_that_is_not_unicode_can_be_written(folder: Path) -> None:
    """Odd bytes in a file's name become escapes in its id."""
    path = os.fsencode(folder) + b"/z\xff.txt"
    with open(path, "wb") as file:
        file.write(b"x")

    assert "z\\xff.txt" == names("papers")[-1]


def test_reading_can_be_confined_to_a_folder(folder: Path) -> None:
    """Relative paths start there, and documents are named as if that were the working directory."""
    for paths, expected in (
        ("sub", ["d.TXT"]),
        (["b.txt", "sub"], ["b.txt", "sub/d.TXT"]),
        ("**/*.[tT]*", ["b.txt", "sub/d.TXT"]),
        (folder / "b.txt", [f"{folder}/b.txt"]),
    ):
        assert expected == [item.custom_id for item in read(paths, inside=Path("papers"))]


@pytest.mark.parametrize(
    "path",
    ["..", "../x.txt", "../*", "sub/../../x.txt", "*/../../*", "/etc/hostname", "out", "a\0b"],
)
def test_nothing_outside_of_the_folder_is_named(folder: Path, path: str) -> None:
    """Neither dots nor links nor absolute paths lead out, whether or not something is there."""
    (folder.parent / "x.txt").write_text("secret")
    (folder / "out").symlink_to(folder.parent)
    with pytest.raises(IntakeError, match="leads out"):
        list(read(path, inside=folder))


def test_links_that_lead_out_are_refused_alone(folder: Path) -> None:
    """A linked file or folder below the folder costs its own document only."""
    (folder.parent / "x.txt").write_text("secret")
    (folder / "link.txt").symlink_to(folder.parent / "x.txt")
    (folder / "good.txt").symlink_to(folder / "b.txt")
    (folder / "out").symlink_to(folder.parent)
    items = list(read(".", inside=folder))

    assert [item.custom_id for item in items] == [
        "a.md",
        "b.txt",
        "good.txt",
        "link.txt",
        "sub/d.TXT",
    ]
    assert [item.custom_id for item in items if isinstance(item, Refusal)] == ["link.txt"]
    assert ["out"] == [item.custom_id for item in read("o*", inside=folder)]


def test_a_service_waits_for_no_pipe(folder: Path) -> None:
    """Inside a service's folder only files are read: a pipe that nobody fills would never end."""
    os.mkfifo(folder / "pipe.txt")
    os.mkfifo(folder / "pipe.jsonl")
    items = list(read(["pipe.txt", "pipe.jsonl"], inside=folder))

    assert [Reason.UNREADABLE] * 2 == [item.code for item in items if isinstance(item, Refusal)]


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """A folder with a file of every kind that people have."""
    for name, data in (
        ("a.pdf", pdf(["in a PDF", "more"], title="T")),
        ("b.docx", docx(paragraph("in a Word file"), title="W")),
        ("c.HTM", b"<title>P</title><p>in a page"),
        ("d.csv", b"text\nin a row\n"),
        ("e.jsonl", b'{"id": "e", "text": "in a line"}'),
        ("f.txt", b"as it is\n"),
        ("g.doc", b"not read"),
    ):
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_folder_gives_every_kind_of_document(office: Path) -> None:
    """Each with its text and where it came from."""
    documents = [item for item in read(office) if isinstance(item, Document)]

    assert {
        "a.pdf": "in a PDF\n\nmore\n",
        "b.docx": "in a Word file\n",
        "c.HTM": "in a page\n",
        "d.csv#1": "in a row",
        "e": "in a line",
        "f.txt": b"as it is\n",
    } == {document.custom_id: document.text for document in documents}
    assert [
        {"file": "a.pdf", "format": "pdf", "title": "T", "pages": [1, 2]},
        {"file": "b.docx", "format": "docx", "title": "W"},
        {"file": "c.HTM", "format": "html", "title": "P"},
        {"file": "d.csv", "line": 2, "row": 1},
        {"file": "e.jsonl", "line": 1},
        {"file": "f.txt"},
    ] == [document.source for document in documents]


def test_looking_through_need_not_extract(office: Path) -> None:
    """Documents come under the same ids, and no process is started for their text."""
    looked = {item.custom_id: item for item in read(office, extract=False)}

    assert [item.custom_id for item in read(office)] == list(looked)
    assert Document("a.pdf", "", source={"file": "a.pdf", "format": "pdf"}) == looked["a.pdf"]


def test_what_is_extracted_can_be_chosen_by_id(office: Path) -> None:
    """Those that have their answers already need not be read again."""
    texts = {
        item.custom_id: item.text
        for item in read(office, extract=lambda custom_id: custom_id != "a.pdf")
        if isinstance(item, Document)
    }

    assert ("", "in a Word file\n") == (texts["a.pdf"], texts["b.docx"])


def test_a_file_without_text_is_refused_alone(office: Path) -> None:
    """A scan, a broken file and one that leads outside are error records with codes."""
    (office / "a.pdf").write_bytes(pdf(["", ""]))
    (office / "b.docx").write_bytes(b"hello")
    (office / "c.HTM").unlink()
    (office / "c.HTM").symlink_to("/etc/hostname")
    items = list(read(".", inside=office))

    assert {
        "a.pdf": Reason.NO_TEXT,
        "b.docx": Reason.EXTRACTION,
        "c.HTM": Reason.UNREADABLE,
    } == {item.custom_id: item.code for item in items if isinstance(item, Refusal)}
    assert 3 == sum(isinstance(item, Document) for item in items)


@pytest.mark.parametrize("paths", [".", "a.pdf", "*.p*"])
def test_a_missing_package_is_told_before_anything_is_read(
    office: Path, monkeypatch: pytest.MonkeyPatch, paths: str
) -> None:
    """In one line, with the command that installs it; files that do not need it are read."""
    find = importlib.util.find_spec
    monkeypatch.chdir(office)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pypdfium2" else find(name)
    )

    with pytest.raises(IntakeError, match=r"a\.pdf cannot be read .*pip install 'docmill\[doc"):
        read(paths)

    assert 1 == len(list(read("b.docx")))
