"""Reading JSON Lines: what counts as a line, and what becomes of one that cannot be used."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import Reason
from docmill.intake.base import Document, Item, Refusal
from docmill.intake.jsonl import parse_line, read_jsonl
from tests.support.cases import CASES

SOURCE = {"file": "in.jsonl", "line": 7}


def write(path: Path, *lines: bytes) -> Path:
    """Write lines to a file."""
    path.write_bytes(b"\n".join(lines))
    return path


def documents(items: list[Item]) -> dict[str, str | bytes]:
    """Return the texts of the documents among items, by id."""
    return {item.custom_id: item.text for item in items if isinstance(item, Document)}


def refusals(items: list[Item]) -> list[Refusal]:
    """Return the refusals among items."""
    return [item for item in items if isinstance(item, Refusal)]


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("max_token", "max_tokens"),
        ("maxTokens", "max_tokens"),
        ("max-document-tokens", "max_document_tokens"),
        ("rule", "rules"),
        ("trunc", "truncate"),
        ("Prompt", "prompt"),
        ("title", None),
        ("temp", None),
        ("seen", None),
        ("label", None),
        ("prompt" * 99, None),
    ],
)
def test_a_key_that_reads_like_an_option_is_noted(key: str, option: str | None) -> None:
    """Data sets have keys of their own, so the document is taken and the key passed over."""
    item = parse_line(json.dumps({"id": "a", "text": "x", key: 3}).encode(), SOURCE)

    assert isinstance(item, Document)
    assert item.options is None
    assert (option and {key: option}) == item.ignored


def test_a_key_beside_the_option_itself_is_not_noted() -> None:
    """Who gives both knows what each of them is."""
    line = b'{"id": "a", "text": "x", "prompts": 3, "prompt": "Sum up."}'
    item = parse_line(line, SOURCE)

    assert isinstance(item, Document)
    assert item.ignored is None


def test_lines_end_at_line_feeds_only() -> None:
    """Line separators of Unicode inside a string do not cut it."""
    texts = documents(list(read_jsonl(CASES / "i01_unicode_line_separators.jsonl")))

    assert {
        "ls-1": "first half\u2028second half",
        "ls-2": "para one\u2029para two",
        "ls-3": "next\x85line, vertical\x0btab, form\x0cfeed, file\x1csep",
        "ls-4": "plain tail record",
    } == texts


def test_bad_lines_are_refused_alone() -> None:
    """Three good lines run; every other one but the blank is refused with its number."""
    items = list(read_jsonl(CASES / "i03_bad_middle.jsonl"))

    assert ["ok-1", "ok-13", "ok-16"] == list(documents(items))
    assert [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16] == [r.line for r in refusals(items)]
    assert {Reason.BAD_LINE} == {refusal.code for refusal in refusals(items)}
    words = {refusal.line: refusal.message for refusal in refusals(items)}
    assert "got null" in words[3]
    assert "custom_id (or id) is missing" in words[8]
    assert "'text' is given twice" in words[11]
    assert "NaN is not JSON" in words[12]


def test_invalid_utf8_is_refused_with_its_offset() -> None:
    """Two of five lines are sound; the others name the first bad byte."""
    items = list(read_jsonl(CASES / "i06_invalid_utf8.jsonl"))

    assert ["u-1", "u-5"] == list(documents(items))
    assert [(2, "offset 37 (0xc3)"), (3, "offset 39 (0xc0)"), (4, "offset 45 (0xed)")] == [
        (refusal.line, refusal.message.rpartition("byte ")[2]) for refusal in refusals(items)
    ]


def test_mojibake_passes_unchanged() -> None:
    """Text that merely looks wrong is not touched."""
    [text] = documents(list(read_jsonl(CASES / "i06_mojibake.jsonl"))).values()

    assert "d\u00c3\u00a9bit mesur\u00c3\u00a9" == text


def test_surrogates_are_refused_but_in_the_document() -> None:
    """Half a pair in an id or in metadata is refused; in the text preprocessing judges it."""
    items = list(read_jsonl(CASES / "v03_surrogates.jsonl"))

    assert "thumb \U0001f44d up" == documents(items)["su-pair"]
    assert "left \ud800 right" == documents(items)["su-lone-high"]
    assert [6, 7] == [refusal.line for refusal in refusals(items)]
    for refusal in refusals(items):
        assert "surrogate" in refusal.message
        refusal.message.encode()
        refusal.custom_id.encode()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"id": "a"}', "text is missing"),
        (b'{"id": "a", "text": null}', "got null"),
        (b'{"id": "", "text": "x"}', "empty"),
        (b'{"id": true, "text": "x"}', "got bool"),
        (b'{"id": "' + b"a" * 513 + b'", "text": "x"}', "longer than 512"),
        (b"[" * 100_000, "not JSON"),
        (b'{"id": "a", "text": "x", "n": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"id": "a", "text": "x"} {"id": "b"}', "Extra data"),
    ],
)
def test_an_unusable_line_says_why(line: bytes, words: str) -> None:
    """The message names file, line and reason in one line."""
    refusal = parse_line(line, SOURCE)

    assert isinstance(refusal, Refusal)
    assert words in refusal.message
    assert refusal.message.startswith("in.jsonl:7: ")
    assert "\n" not in refusal.message


def test_a_plain_line_may_ask_for_itself() -> None:
    """Its options are taken over, null ones are not, and other keys are ignored."""
    line = b'{"id": 17, "text": "x", "max_tokens": 5, "seed": null, "score": 0.5, "prompt": "P"}'

    item = parse_line(line, SOURCE)

    assert Document("17", "x", options={"max_tokens": 5, "prompt": "P"}, source=SOURCE) == item


def test_a_byte_order_mark_and_windows_line_ends_are_no_content(tmp_path: Path) -> None:
    """A file from a spreadsheet reads like any other."""
    path = write(tmp_path / "in.jsonl", b'\xef\xbb\xbf{"id": "a", "text": "x"}\r', b"\r", b"")

    assert {"a": "x"} == documents(list(read_jsonl(path)))


def test_a_line_over_the_limit_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    """It is refused with number, size and limit, its neighbours run, and it is never held."""
    huge = 30_000_000
    path = write(
        tmp_path / "in.jsonl",
        b'{"id": "a", "text": "x"}',
        b'{"id": "huge", "text": "' + b"x" * huge + b'"}',
        b'{"id": "b", "text": "y"}',
    )
    tracemalloc.start()
    items = list(read_jsonl(path, max_document_bytes=100_000))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert {"a": "x", "b": "y"} == documents(items)
    [refusal] = refusals(items)
    assert (Reason.TOO_LARGE, 2) == (refusal.code, refusal.line)
    assert f"{huge + 27} bytes" in refusal.message
    assert "365536" in refusal.message
    assert peak_bytes < 5_000_000


@given(st.text(), st.text(min_size=1, max_size=100).filter(lambda text: text.isprintable()))
def test_any_text_survives(text: str, custom_id: str) -> None:
    """What was written as JSON comes back code point for code point, escaped or not."""
    for is_ascii in (True, False):
        line = json.dumps({"id": custom_id, "text": text}, ensure_ascii=is_ascii)
        item = parse_line(line.encode(), SOURCE)
        assert isinstance(item, Document)
        assert (custom_id, text) == (item.custom_id, item.text)


@given(st.binary(max_size=200))
def test_no_line_raises(line: bytes) -> None:
    """Whatever the bytes are, a line gives a document or a refusal."""
    assert isinstance(parse_line(line, SOURCE), Document | Refusal)
