"""Rules about content that is encoded so that readers, and filters, do not see what it says.

Decoded only to tell text from noise; what it says is not judged. May import numpy and this package.
"""

import binascii
import re
from collections.abc import Iterator

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Mark, Scan, runs

#: 24 bytes in base64, a short sentence.
_MIN_LEN = 32
#: So long and no text: a file.
_MIN_FILE_LEN = 200
#: Longer than any checksum in hexadecimal digits (SHA-512 has 128).
_MIN_HEX_FILE_LEN = 256
#: Line breaks within base64, with the indentation of what quotes it.
_MAX_GAP = 6
#: What is decoded of a payload to see whether it is text.
_SAMPLE_LEN = 96
_HEX_DIGITS = "0123456789abcdefABCDEF"
_MIXED = re.compile("(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])")
#: Base64 has a slash every 64 characters, a path every ten or so.
_MAX_SLASH_SHARE = 1 / 16

#: An ASCII letter or space in hexadecimal digits: nothing that any format has to escape.
_LETTER = "(?:[46][1-9a-fA-F]|[57][0-9aA]|20)"
#: By what an escape begins with: a plain string, which is fast to search for.
_ESCAPES = {
    "%": _LETTER,
    "\\x": _LETTER,
    "\\u00": _LETTER,
    "&#": rf"(?:[xX]0{{0,4}}{_LETTER}|0{{0,4}}(?:6[5-9]|[789][0-9]|1[01][0-9]|12[0-2]|32));",
}
_MIN_ESCAPES = 8
_ESCAPED = {
    prefix: re.compile(
        rf"{re.escape(prefix)}{rest}(?:{re.escape(prefix)}{rest}){{{_MIN_ESCAPES - 1},}}+"
    )
    for prefix, rest in _ESCAPES.items()
}
_DATA_URL = re.compile(
    r"data:(?:[a-z0-9.+-]{1,60}+/[a-z0-9.+-]{1,80}+(?:;[a-z0-9=.+-]{1,60}+){0,4}+|;base64),"
)


def _find_payloads(scan: Scan) -> Hits | None:
    if not scan.present & Mark.CODED:
        return None
    found = [start for start, code in _codes(scan) if _is_payload(code)]
    return Hits(len(found), found[0]) if found else None


def _codes(scan: Scan) -> Iterator[tuple[int, str]]:
    """Yield where unbroken characters of the alphabet begin, with them, their lines joined."""
    starts, ends = runs(scan.mask(Mark.CODED), _MIN_LEN)
    pieces: list[str] = []
    first = last = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if pieces and (start - last > _MAX_GAP or not scan.text[last:start].isspace()):
            yield first, "".join(pieces)
            pieces = []
        if not pieces:
            first = start
        pieces.append(scan.text[start:end])
        last = end
    if pieces:
        yield first, "".join(pieces)


def _is_payload(code: str) -> bool:
    sample = code[:_SAMPLE_LEN]
    if not sample.strip(_HEX_DIGITS):
        if sample.isdigit() or sample.isalpha():  # long numbers, and one letter over and over
            return False
        is_file = len(code) >= _MIN_HEX_FILE_LEN
        return is_file or _is_text(bytes.fromhex(sample[: len(sample) & ~1]))
    if sample.count("/") > _MAX_SLASH_SHARE * len(sample):
        return False
    if len(code) >= _MIN_FILE_LEN and _MIXED.match(sample):
        return True
    return _is_text(binascii.a2b_base64(sample[: len(sample) & ~3]))


def _is_text(content: bytes) -> bool:
    """Whether bytes are words in UTF-8: random ones are not even valid."""
    text = content.decode(errors="replace")
    if "\ufffd" in text[:-2]:  # the end may be in the middle of a character
        return False
    num_letters = sum(map(str.isalpha, text))
    return num_letters > len(text) / 2 and (not text.isascii() or " " in text)


def _find_escaped(scan: Scan) -> Hits | None:
    text = scan.text
    found = [
        match.start()
        for prefix, pattern in _ESCAPED.items()
        if text.count(prefix) >= _MIN_ESCAPES
        for match in pattern.finditer(text)
        if not _is_periodic(match[0])
    ]
    return Hits(len(found), min(found)) if found else None


def _is_periodic(text: str) -> bool:
    """Whether it is one pattern over and over, such as a bit mask, rather than words."""
    return text in (text + text)[1:-1]


def _find_data_urls(scan: Scan) -> Hits | None:
    if "data:" not in scan.lowered:
        return None
    found = [match.start() for match in _DATA_URL.finditer(scan.lowered)]
    return Hits(len(found), scan.origin(found[0])) if found else None


RULES = (
    Rule(
        "encoded_payload",
        "medium",
        f"Text in base64 or hexadecimal digits ({_MIN_LEN} characters or more), or a whole file "
        f"({_MIN_FILE_LEN} of base64, {_MIN_HEX_FILE_LEN} digits). Checksums and keys are shorter.",
        _find_payloads,
    ),
    Rule(
        "escaped_text",
        "medium",
        "Eight or more plain letters in a row written as escapes (%69, \\x69, \\u0069, &#105;), "
        "which no format asks for.",
        _find_escaped,
    ),
    Rule(
        "data_url",
        "low",
        "A file embedded as a data: URL.",
        _find_data_urls,
    ),
)
