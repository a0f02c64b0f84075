"""From bytes to text, or to a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import Reason
from docmill.wire import Failure
from preprocess.checks import Text, read
from tests.support.cases import CASES, documents


def _check(document: bytes, encoding: str = "utf-8") -> Text | Failure:
    return read(document, encoding, max_bytes=100_000)


def _code_of(document: bytes, encoding: str = "utf-8") -> str:
    outcome = _check(document, encoding)
    return outcome.code if isinstance(outcome, Failure) else "text"


def test_every_script_passes_byte_for_byte() -> None:
    """Joiners, variation selectors, tag characters and combining marks are text, not dirt."""
    for custom_id, document in documents("v05_scripts_keep.jsonl").items():
        outcome = _check(document)

        assert isinstance(outcome, Text), custom_id
        assert document == outcome.text.encode()


def test_documents_without_anything_to_see_are_empty() -> None:
    """White space, byte-order marks, zero-width and control characters make no document."""
    codes = {name: _code_of(text) for name, text in documents("v08_empty_documents.jsonl").items()}
    passed = {"em-special", "em-one", "em-good"}  # a control token spelled out is visible text

    assert {name: "text" if name in passed else "empty_document" for name in codes} == codes


@pytest.mark.parametrize("text", ["۝", "👍", "ㅤa", "\u200b.\u200b", "\x1b[1mx"])
def test_one_visible_character_is_enough(text: str) -> None:
    """A document is as little as one character with a glyph."""
    outcome = _check(text.encode())

    assert Text(text) == outcome


def test_undeclared_cp1252_is_refused_with_the_offset() -> None:
    """Nothing is guessed: the first byte that is not UTF-8 is named."""
    document = (CASES / "i06_cp1252.txt").read_bytes()

    outcome = _check(document)

    assert isinstance(outcome, Failure)
    assert Reason.ENCODING == outcome.code
    assert "byte 9 (0xb0" in outcome.message
    assert "--encoding" in outcome.message


def test_declared_cp1252_is_read_exactly() -> None:
    """A declared encoding is honoured."""
    document = (CASES / "i06_cp1252.txt").read_bytes()

    outcome = _check(document, "cp1252")

    assert isinstance(outcome, Text)
    assert document == outcome.text.encode("cp1252")


def test_mojibake_is_not_rewritten() -> None:
    """Text that somebody decoded wrongly long ago is still their text."""
    for document in documents("i06_mojibake.jsonl").values():
        outcome = _check(document)

        assert isinstance(outcome, Text)
        assert document == outcome.text.encode()


def test_invalid_utf8_is_refused_row_by_row() -> None:
    """Stray continuation bytes and overlong forms are not UTF-8; surrogates are the rules'."""
    lines = (CASES / "i06_invalid_utf8.jsonl").read_bytes().splitlines()
    documents = [json.loads(line.decode("latin-1"))["text"].encode("latin-1") for line in lines]

    assert ["text", "encoding", "encoding", "text", "text"] == list(map(_code_of, documents))


def test_lone_surrogates_are_read_and_a_pair_is_one_character() -> None:
    """What JSON can spell and UTF-8 cannot comes as it is: a rule says what becomes of it."""
    texts = documents("v03_surrogates.jsonl")

    assert {"text"} == set(map(_code_of, texts.values()))
    assert Text("left \ud800 right") == _check(texts["su-lone-high"])
    assert Text("thumb 👍 up") == _check(texts["su-pair"])


@pytest.mark.parametrize(
    ("document", "encoding"),
    [
        (b"\xef\xbb\xbfplain", "utf-8"),
        (b"\xef\xbb\xbfplain", "utf-8-sig"),
        ("\ufeffplain".encode("utf-16-le"), "utf-16"),
        ("\ufeffplain".encode("utf-16-le"), "utf-16-le"),
    ],
)
def test_one_byte_order_mark_at_the_start_is_not_text(document: bytes, encoding: str) -> None:
    """A byte-order mark says how to read the bytes."""
    assert Text("plain") == _check(document, encoding)


def test_later_byte_order_marks_stay() -> None:
    """Only the first mark is one; U+FEFF elsewhere is part of the text."""
    assert Text("\ufeffa\ufeffb") == _check("\ufeff\ufeffa\ufeffb".encode())


@pytest.mark.parametrize("declared", ["utf-8", "cp1252", "utf-16-le", "gb18030", "utf-7", "utf-32"])
@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-8", "UTF-8"),
        ("utf-16-be", "UTF-16"),
        ("utf-16-le", "UTF-16"),
        ("utf-32-be", "UTF-32"),
        ("utf-32-le", "UTF-32"),
    ],
)
def test_a_mark_that_contradicts_the_declaration_is_named(
    encoding: str, name: str, declared: str
) -> None:
    """A mark of one encoding under the name of another is refused, and the message says so."""
    outcome = _check("\ufeffplain".encode(encoding), declared)

    if declared in (encoding, encoding[:6]):
        assert Text("plain") == outcome
        return
    assert isinstance(outcome, Failure)
    assert Reason.ENCODING == outcome.code
    assert f"the mark of {name} but is declared {declared}: declare" in outcome.message


@pytest.mark.parametrize(
    "encoding", ["no-such", "hex", "idna", "punycode", "undefined", "", "a\0b", "\ud800", "../x"]
)
def test_what_is_no_text_encoding_is_refused(encoding: str) -> None:
    """An encoding that is unknown, or none of text, is the document's problem alone."""
    assert Reason.ENCODING == _code_of(b"plain", encoding)


@pytest.mark.parametrize(
    ("document", "encoding"),
    [
        (b"a\xed\xa0\x80", "utf-8"),
        (b"a+2AA-", "utf-7"),
        (b"a\x00\x00\xd8", "utf-16-le"),
        (b"\0a\xd8\x00", "utf-16-be"),
    ],
)
def test_surrogates_of_any_encoding_are_kept(document: bytes, encoding: str) -> None:
    """Whichever encoding expresses them, lone surrogates come as they are."""
    assert Text("a\ud800") == _check(document, encoding)


def test_other_bad_bytes_are_refused_beside_surrogates() -> None:
    """Keeping surrogates excuses nothing else, a cut-off one included."""
    outcome = _check(b"\xed\xa0\x80 \xff")

    assert isinstance(outcome, Failure)
    assert Reason.ENCODING == outcome.code
    assert "byte 4" in outcome.message
    assert Reason.ENCODING == _code_of(b"a\xed\xa0")


@pytest.mark.parametrize(
    "document",
    [
        b"%PDF-1.7\nabc",
        b"PK\x03\x04abc",
        b"\x89PNG\r\n",
        b"\x28\xb5\x2f\xfd abc",
        b"{\\rtf1 abc}",
        bytes(range(32)) * 8 + b"some words",
    ],
)
def test_binary_files_are_not_text(document: bytes) -> None:
    """A known signature or many control characters: not text, whatever the bytes decode to."""
    assert Reason.NOT_TEXT == _code_of(document)


def test_text_of_another_encoding_is_told_what_to_do() -> None:
    """UTF-16 without its mark looks like a binary file; the message names the remedy."""
    outcome = _check("text".encode("utf-16-le"))

    assert isinstance(outcome, Failure)
    assert Reason.NOT_TEXT == outcome.code
    assert "--encoding" in outcome.message


def test_a_few_control_characters_pass() -> None:
    """Stray control characters happen in real text; what is done about them a rule decides."""
    assert Text("page one\x00page two") == _check(b"page one\0page two")


def test_colours_and_page_breaks_are_text() -> None:
    """Terminal colours, form feeds and overstrikes need no warning."""
    assert Text("\x1b[31mred\x1b[0m\fN\bN") == _check(b"\x1b[31mred\x1b[0m\fN\bN")


def test_the_size_limit_is_exact() -> None:
    """The limit itself passes, one byte more does not."""
    assert "text" == _code_of(b"a" * 100_000)
    assert Reason.TOO_LARGE == _code_of(b"a" * 100_001)


@given(document=st.binary(max_size=300), encoding=st.sampled_from(["utf-8", "cp1252", "utf-16"]))
def test_any_bytes_get_a_decision(document: bytes, encoding: str) -> None:
    """Whatever the bytes: text, or a reason from the closed list."""
    outcome = _check(document, encoding)

    if isinstance(outcome, Failure):
        assert Reason(outcome.code) in Reason
    else:
        assert outcome.text.encode(errors="surrogatepass")
