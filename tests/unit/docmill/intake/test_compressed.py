"""Compressed files as streams: the same documents, and no bombs."""

import gzip
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from docmill.errors import Reason
from docmill.intake import Document, Item, Refusal, compressed, read
from tests.support.cases import CASES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd.compress}

pytestmark = pytest.mark.parametrize("suffix", PACKERS)


def packed(path: Path, data: bytes) -> Path:
    """Write a compressed file."""
    path.write_bytes(PACKERS[path.suffix](data))
    return path


def outcomes(items: list[Item]) -> list[tuple[object, ...]]:
    """Return what matters of each item, without its file's name."""
    return [
        (item.text, item.custom_id)
        if isinstance(item, Document)
        else (item.code, item.line, item.message.partition(": ")[2])
        for item in items
    ]


@pytest.mark.parametrize(
    "name",
    [
        "i01_unicode_line_separators.jsonl",
        "i03_bad_middle.jsonl",
        "i06_invalid_utf8.jsonl",
        "i06_mojibake.jsonl",
    ],
)
def test_compressed_lines_are_the_lines(tmp_path: Path, suffix: str, name: str) -> None:
    """Good and bad ones alike, under the same ids, numbers and words."""
    path = packed(tmp_path / f"{name}{suffix}", (CASES / name).read_bytes())

    assert outcomes(list(read(CASES / name))) == outcomes(list(read(path)))


def test_texts_and_tables_may_be_compressed(tmp_path: Path, suffix: str) -> None:
    """And folders give them as well."""
    packed(tmp_path / f"a.txt{suffix}", b"bee\xe9")
    packed(tmp_path / f"b.csv{suffix}", b"id,text\n1,one\n")
    packed(tmp_path / f"c.pdf{suffix}", b"not read")
    text, row = read(tmp_path, encoding="cp1252")

    assert (
        Document(f"a.txt{suffix}", b"bee\xe9", "cp1252", source={"file": f"a.txt{suffix}"}) == text
    )
    assert isinstance(row, Document)
    assert ("1", "one") == (row.custom_id, row.text)


def test_a_file_that_is_cut_off_gives_what_it_has(tmp_path: Path, suffix: str) -> None:
    """The lines before the damage are documents, the rest is one error record."""
    lines = b"".join(b'{"id": %d, "text": "%d"}\n' % (n, n**9) for n in range(20_000))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](lines)[:-20_000])
    *documents, last = read(path)

    assert all(isinstance(item, Document) for item in documents)
    assert documents
    assert isinstance(last, Refusal)
    assert (str(path), Reason.UNREADABLE) == (last.custom_id, last.code)
    assert "data is damaged or cut off after " in last.message


def test_a_file_that_is_not_compressed_is_refused(tmp_path: Path, suffix: str) -> None:
    """Its name does not say what it is."""
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(b'{"id": 1, "text": "x"}\n')
    [refusal] = read(path)

    assert isinstance(refusal, Refusal)
    assert Reason.UNREADABLE == refusal.code


def test_a_text_that_unpacks_to_too_much_is_refused(tmp_path: Path, suffix: str) -> None:
    """No more of it is unpacked than a document may have."""
    path = packed(tmp_path / f"a.txt{suffix}", bytes(50_000_000))
    tracemalloc.start()
    [refusal] = read(path, max_document_bytes=100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(refusal, Refusal)
    assert Reason.TOO_LARGE == refusal.code
    assert "unpacked, it is more than the 100000 bytes" in refusal.message
    assert peak < 1_000_000


def test_a_bomb_of_lines_is_stopped(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What grows out of proportion is refused before it costs much; good lines before it run."""
    monkeypatch.setattr(compressed, "ALWAYS_BYTES", 1_000_000)
    good = b'{"id": 1, "text": "x"}\n'
    path = packed(tmp_path / f"a.jsonl{suffix}", good + b" " * 40_000_000)
    document, refusal = read(path, max_document_bytes=1000)

    assert isinstance(document, Document)
    assert isinstance(refusal, Refusal)
    assert Reason.TOO_LARGE == refusal.code
    assert "unpacks to more than 500 times its size; if that is meant, unpack it" in refusal.message
