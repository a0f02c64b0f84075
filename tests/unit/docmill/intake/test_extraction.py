"""The process that reads files: what a bad file costs, and whom."""

import contextlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docmill.errors import InvalidDocument, Reason
from docmill.extract.limits import Limits
from docmill.intake.extraction import Extraction
from tests.support.documents import docx, paragraph, pdf
from tests.support.wait import wait_until

#: Each form draws the next one ten times: a text of 10^11 letters in five kilobytes.
HOG = pdf(
    ["x"],
    forms=[*(b" ".join([b"/X%d Do" % (at + 1)] * 10) for at in range(11)), b"BT /F 9 Tf (x) Tj ET"],
)

WHOLE = {
    "pdf": pdf(["some\ntext", "more"], title="Title"),
    "docx": docx(paragraph("Head", "Heading1") + paragraph("text"), title="Title"),
    "html": b"<title>x</title><table><tr><td>a<td>b</table><pre>\xc3\xa9</pre>",
}


@pytest.fixture(scope="module")
def extraction() -> Iterator[Extraction]:
    """One process for all tests that do not break it."""
    with Extraction() as started:
        yield started


def text_of(extraction: Extraction, path: Path, max_document_bytes: int = 1_000_000) -> str:
    """Return the text that extraction finds in a file, its kind by its suffix."""
    kind = path.suffix.removeprefix(".")
    text, _ = extraction.read(path, kind, encoding="utf-8", max_document_bytes=max_document_bytes)
    return text


def write(path: Path, data: bytes) -> Path:
    """Write a file."""
    path.write_bytes(data)
    return path


def refused(extraction: Extraction, path: Path) -> tuple[Reason, str]:
    """Return why a file is refused."""
    with pytest.raises(InvalidDocument) as error:
        text_of(extraction, path)
    return error.value.reason, error.value.message


def test_every_format_is_read(extraction: Extraction, tmp_path: Path) -> None:
    """By one process, one after another."""
    found = [
        text_of(extraction, write(tmp_path / name, data))
        for name, data in (
            ("a.pdf", pdf(["text"])),
            ("a.docx", docx(paragraph("text"))),
            ("a.html", b"<p>text"),
        )
    ]

    assert ["text\n"] * 3 == found


def test_a_broken_file_costs_itself_only(extraction: Extraction, tmp_path: Path) -> None:
    """What a library raises is a refusal, and the same process reads on."""
    code, message = refused(extraction, write(tmp_path / "a.docx", b"PK\x03\x04hello"))

    assert (Reason.EXTRACTION, "it is no DOCX file, or a broken one (BadZipFile)") == (
        code,
        message,
    )
    assert "text\n" == text_of(extraction, write(tmp_path / "b.pdf", pdf(["text"])))


def test_a_file_that_is_too_large_is_refused_unread(extraction: Extraction, tmp_path: Path) -> None:
    """It may be sixteen times as large as its text."""
    path = write(tmp_path / "a.html", b" " * 1601)

    with pytest.raises(InvalidDocument, match="1601 bytes are more than the 1600") as error:
        text_of(extraction, path, max_document_bytes=100)

    assert Reason.TOO_LARGE == error.value.reason


def test_a_file_that_cannot_be_opened_says_so(extraction: Extraction, tmp_path: Path) -> None:
    """In the system's own words, as for any other file."""
    with pytest.raises(FileNotFoundError):
        text_of(extraction, tmp_path / "a.pdf")


@pytest.mark.parametrize(
    ("limits", "name", "words"),
    [
        (Limits(cpu_s=0), "hog.pdf", "it took more than 0 s of computing"),
        (Limits(wall_s=1), "hog.pdf", "it took longer than 1 s"),
        (Limits(memory_mib=200), "fat.docx", "it needs more than 200 MiB of memory"),
    ],
)
def test_a_file_that_breaks_a_limit_costs_itself_only(
    tmp_path: Path, limits: Limits, name: str, words: str
) -> None:
    """Time, computing and memory are bounded, and the next file has a new process."""
    write(tmp_path / "hog.pdf", HOG)
    write(tmp_path / "fat.docx", docx("<w:p/>" * 300_000))
    good = write(tmp_path / "good.pdf", pdf(["text"]))
    with Extraction(limits) as extraction:
        refusal = refused(extraction, tmp_path / name)

        assert (Reason.EXTRACTION, words) == refusal
        assert "text\n" == text_of(extraction, good)


def test_entities_that_multiply_are_refused(extraction: Extraction, tmp_path: Path) -> None:
    """A file of a few kilobytes does not become one of gigabytes."""
    entities = "".join(f'<!ENTITY e{at} "{f"&e{at - 1};" * 10}">' for at in range(1, 12))
    document = f'<!DOCTYPE d [<!ENTITY e0 "lol">{entities}]><d>&e11;</d>'
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", document)

    assert Reason.EXTRACTION == refused(extraction, path)[0]


@given(kind=st.sampled_from(sorted(WHOLE)), data=st.data())
@settings(max_examples=60)
def test_any_bytes_become_a_text_or_a_refusal(
    extraction: Extraction, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    """Also where a file was whole once."""
    whole = WHOLE[kind]
    at = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("damaged") / f"a.{kind}"
    write(path, whole[:at] + data.draw(st.binary(max_size=20)) + whole[at + 1 :])

    with contextlib.suppress(InvalidDocument):
        text_of(extraction, path)


def test_a_process_that_others_wore_out_is_not_a_file_s_fault(tmp_path: Path) -> None:
    """A file whose process dies is read once more in a new one, if others were read before."""
    path = write(tmp_path / "a.pdf", pdf(["text"]))
    with Extraction() as extraction:
        text_of(extraction, path)
        assert extraction.pid is not None
        os.kill(extraction.pid, signal.SIGKILL)

        assert "text\n" == text_of(extraction, path)


def test_the_process_ends_when_it_is_no_longer_needed(tmp_path: Path) -> None:
    """Closing ends it; without a file none is started."""
    with Extraction() as extraction:
        before = extraction.pid
        text_of(extraction, write(tmp_path / "a.html", b"text"))
        pid = extraction.pid

    assert before is None
    assert pid is not None
    assert not is_alive(pid)


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """However the parent ends, and also in the middle of a file."""
    write(tmp_path / "hog.pdf", HOG)
    code = (
        "import sys, threading, time; from pathlib import Path\n"
        "from docmill.intake.extraction import Extraction\n"
        "extraction = Extraction()\n"
        "read = lambda: extraction.read(Path(sys.argv[1]), 'pdf', encoding='utf-8',"
        " max_document_bytes=99999)\n"
        "threading.Thread(target=read, daemon=True).start()\n"
        "while not extraction.pid: time.sleep(0.01)\n"
        "print(extraction.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "hog.pdf")], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()

    wait_until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to look does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
